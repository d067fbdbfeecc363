/* =====================================================================================================================
 * >>text/answer: how models write answers: tables of the marks around thoughts and calls of tools.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"

SPECDEC__FOR_SIZE

/* Forms of tool calls: how a family of models writes the name and the arguments of a call. */
enum {
    SPECDEC__CALLS_JSON,    /* a JSON object with name and arguments, or a list of such objects */
    SPECDEC__CALLS_NAMED,   /* the name, then the arguments as a JSON object */
    SPECDEC__CALLS_PAIRS,   /* the name, then name and value of each argument between marks */
    SPECDEC__CALLS_PYTHON,  /* name(argument=value, ...) */
    SPECDEC__CALLS_BRACES,  /* name{argument:value,...}, with strings between marks */
    SPECDEC__CALLS_CHANNEL  /* messages with headers (gpt-oss's Harmony format) */
};

/* Flags of a row of specdec__call_table: variants of a form of tool calls. */
enum {
    SPECDEC__CALLS_KEYED = 1, /* JSON: {NAME: arguments} */
    SPECDEC__CALLS_BARE = 2,  /* JSON: no mark; the answer begins with an object that is a call */
    SPECDEC__CALLS_PATH = 4,  /* the name is written as functions.NAME, and may be followed by a colon and a number */
    SPECDEC__CALLS_LINES = 8  /* the value of an argument may stand between line ends */
};

/* Texts of a row of specdec__call_table: marks around calls and around their parts. A row lists those that the model
   writes. */
#define SPECDEC__CALL_SECTION_BEGIN(text) SPECDEC__ROW_TEXT("s", text) /* in front of all calls of an answer */
#define SPECDEC__CALL_SECTION_END(text) SPECDEC__ROW_TEXT("e", text)   /* behind all calls of an answer */
#define SPECDEC__CALL_BEGIN(text) SPECDEC__ROW_TEXT("m", text)         /* in front of each call */
#define SPECDEC__CALL_END(text) SPECDEC__ROW_TEXT("c", text)           /* behind each call */
#define SPECDEC__CALL_ID_END(text) SPECDEC__ROW_TEXT("i", text)   /* between a call's identifier and the tool's name */
#define SPECDEC__CALL_NAME_END(text) SPECDEC__ROW_TEXT("n", text) /* between the tool's name and the arguments; "":
                                                                     white space or "<" */
#define SPECDEC__CALL_KEY_BEGIN(text) SPECDEC__ROW_TEXT("k", text) /* in front of an argument's name */
#define SPECDEC__CALL_KEY_END(text) SPECDEC__ROW_TEXT("K", text)   /* behind an argument's name */
#define SPECDEC__CALL_VALUE_BEGIN(text) SPECDEC__ROW_TEXT("v", text) /* in front of an argument's value */
#define SPECDEC__CALL_VALUE_END(text) SPECDEC__ROW_TEXT("V", text)   /* behind an argument's value */
/* Where the engine writes a call: in front of the tool's name; between name and arguments; behind the arguments. */
#define SPECDEC__CALL_WRITTEN_BEGIN(text) SPECDEC__ROW_TEXT("b", text)
#define SPECDEC__CALL_WRITTEN_MIDDLE(text) SPECDEC__ROW_TEXT("w", text)
#define SPECDEC__CALL_WRITTEN_END(text) SPECDEC__ROW_TEXT("f", text)

/* How a family of models writes tool calls. */
typedef struct specdec__calls {
    const char *name;  /* name of this way of writing calls, such as "hermes" */
    int form, flags;   /* syntax of a call: SPECDEC__CALLS_JSON to _CHANNEL; its variants: bits CALLS_KEYED to _LINES */
    const char *texts; /* the marks of the family: SPECDEC__CALL_SECTION_BEGIN and so on */
} specdec__calls;

/* How a family of models writes thoughts (reasoning): between two marks. */
typedef struct specdec__thoughts {
    const char *name;             /* name of this way of writing thoughts, such as "think" */
    const char *open, *close;     /* marks in front of a thought and behind it */
    const char *content_marks[4]; /* marks around the content of the answer; the splitter leaves them out */
} specdec__thoughts;

/* DeepSeek's tokens around calls, with a full-width bar, U+FF5C, and a lower block, U+2581. */
#define SPECDEC__BAR "\xef\xbd\x9c"
#define SPECDEC__BLOCK "\xe2\x96\x81"
#define SPECDEC__DEEPSEEK(words) "<" SPECDEC__BAR "tool" SPECDEC__BLOCK words SPECDEC__BAR ">"
#define SPECDEC__DEEPSEEK_CALLS_BEGIN SPECDEC__DEEPSEEK("calls" SPECDEC__BLOCK "begin")
#define SPECDEC__DEEPSEEK_CALLS_END SPECDEC__DEEPSEEK("calls" SPECDEC__BLOCK "end")
#define SPECDEC__DEEPSEEK_CALL_BEGIN SPECDEC__DEEPSEEK("call" SPECDEC__BLOCK "begin")
#define SPECDEC__DEEPSEEK_CALL_END SPECDEC__DEEPSEEK("call" SPECDEC__BLOCK "end")
#define SPECDEC__DEEPSEEK_CALL_SEP SPECDEC__DEEPSEEK("sep")
#define SPECDEC__DSML "<" SPECDEC__BAR "DSML" SPECDEC__BAR
#define SPECDEC__DSML_END "</" SPECDEC__BAR "DSML" SPECDEC__BAR

/* How all families of models write tool calls. A chat template gets the first row whose marks parse the tool call that
   the template writes. */
static const specdec__calls specdec__call_table[] = {
    {"hermes", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_BEGIN("<tool_call>") SPECDEC__CALL_END("</tool_call>")
     SPECDEC__CALL_WRITTEN_BEGIN("<tool_call>\n{\"name\": \"") SPECDEC__CALL_WRITTEN_MIDDLE("\", \"arguments\": ")
     SPECDEC__CALL_WRITTEN_END("}\n</tool_call>")},
    {"mistral", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_BEGIN("[TOOL_CALLS]") SPECDEC__CALL_NAME_END("[ARGS]") SPECDEC__CALL_WRITTEN_BEGIN("[TOOL_CALLS]")
     SPECDEC__CALL_WRITTEN_MIDDLE("[ARGS]") SPECDEC__CALL_WRITTEN_END("")},
    {"mistral-list", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_BEGIN("[TOOL_CALLS]") SPECDEC__CALL_WRITTEN_BEGIN("[TOOL_CALLS][{\"name\": \"")
     SPECDEC__CALL_WRITTEN_MIDDLE("\", \"arguments\": ") SPECDEC__CALL_WRITTEN_END("}]")},
    {"deepseek-r1", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_SECTION_BEGIN(SPECDEC__DEEPSEEK_CALLS_BEGIN)
     SPECDEC__CALL_BEGIN(SPECDEC__DEEPSEEK_CALL_BEGIN "function" SPECDEC__DEEPSEEK_CALL_SEP)
     SPECDEC__CALL_NAME_END("\n```json\n") SPECDEC__CALL_END("```" SPECDEC__DEEPSEEK_CALL_END)
     SPECDEC__CALL_SECTION_END(SPECDEC__DEEPSEEK_CALLS_END)
     SPECDEC__CALL_WRITTEN_BEGIN(SPECDEC__DEEPSEEK_CALLS_BEGIN SPECDEC__DEEPSEEK_CALL_BEGIN "function"
        SPECDEC__DEEPSEEK_CALL_SEP) SPECDEC__CALL_WRITTEN_MIDDLE("\n```json\n")
     SPECDEC__CALL_WRITTEN_END("\n```" SPECDEC__DEEPSEEK_CALL_END SPECDEC__DEEPSEEK_CALLS_END)},
    {"deepseek-v3", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_SECTION_BEGIN(SPECDEC__DEEPSEEK_CALLS_BEGIN) SPECDEC__CALL_BEGIN(SPECDEC__DEEPSEEK_CALL_BEGIN)
     SPECDEC__CALL_NAME_END(SPECDEC__DEEPSEEK_CALL_SEP) SPECDEC__CALL_END(SPECDEC__DEEPSEEK_CALL_END)
     SPECDEC__CALL_SECTION_END(SPECDEC__DEEPSEEK_CALLS_END)
     SPECDEC__CALL_WRITTEN_BEGIN(SPECDEC__DEEPSEEK_CALLS_BEGIN SPECDEC__DEEPSEEK_CALL_BEGIN)
     SPECDEC__CALL_WRITTEN_MIDDLE(SPECDEC__DEEPSEEK_CALL_SEP)
     SPECDEC__CALL_WRITTEN_END(SPECDEC__DEEPSEEK_CALL_END SPECDEC__DEEPSEEK_CALLS_END)},
    {"deepseek-v4", SPECDEC__CALLS_PAIRS, 0,
     SPECDEC__CALL_SECTION_BEGIN(SPECDEC__DSML "tool_calls>") SPECDEC__CALL_BEGIN(SPECDEC__DSML "invoke name=\"")
     SPECDEC__CALL_NAME_END("\">") SPECDEC__CALL_END(SPECDEC__DSML_END "invoke>")
     SPECDEC__CALL_SECTION_END(SPECDEC__DSML_END "tool_calls>")
     SPECDEC__CALL_KEY_BEGIN(SPECDEC__DSML "parameter name=\"") SPECDEC__CALL_KEY_END(">")
     SPECDEC__CALL_VALUE_END(SPECDEC__DSML_END "parameter>")
     SPECDEC__CALL_WRITTEN_BEGIN(SPECDEC__DSML "tool_calls>\n" SPECDEC__DSML "invoke name=\"")
     SPECDEC__CALL_WRITTEN_MIDDLE("\">\n")},
    {"kimi", SPECDEC__CALLS_NAMED, SPECDEC__CALLS_PATH,
     SPECDEC__CALL_SECTION_BEGIN("<|tool_calls_section_begin|>") SPECDEC__CALL_BEGIN("<|tool_call_begin|>")
     SPECDEC__CALL_NAME_END("<|tool_call_argument_begin|>") SPECDEC__CALL_END("<|tool_call_end|>")
     SPECDEC__CALL_SECTION_END("<|tool_calls_section_end|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|tool_calls_section_begin|><|tool_call_begin|>functions.")
     SPECDEC__CALL_WRITTEN_MIDDLE(":0<|tool_call_argument_begin|>")
     SPECDEC__CALL_WRITTEN_END("<|tool_call_end|><|tool_calls_section_end|>")},
    {"solar", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_SECTION_BEGIN("<|tool_calls|>") SPECDEC__CALL_BEGIN("<|tool_call:begin|>")
     SPECDEC__CALL_ID_END("<|tool_call:name|>") SPECDEC__CALL_NAME_END("<|tool_call:args|>")
     SPECDEC__CALL_END("<|tool_call:end|>") SPECDEC__CALL_SECTION_END("<|calls|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>")
     SPECDEC__CALL_WRITTEN_MIDDLE("<|tool_call:args|>") SPECDEC__CALL_WRITTEN_END("<|tool_call:end|><|calls|>")},
    {"gpt-oss", SPECDEC__CALLS_CHANNEL, 0,
     SPECDEC__CALL_BEGIN("<|start|>") SPECDEC__CALL_NAME_END("<|message|>") SPECDEC__CALL_END("<|call|>")
     SPECDEC__CALL_SECTION_END("<|end|>") SPECDEC__CALL_WRITTEN_BEGIN("<|channel|>commentary to=functions.")
     SPECDEC__CALL_WRITTEN_MIDDLE(" <|constrain|>json<|message|>") SPECDEC__CALL_WRITTEN_END("<|call|>")},
    {"gemma4", SPECDEC__CALLS_BRACES, 0,
     SPECDEC__CALL_BEGIN("<|tool_call>call:") SPECDEC__CALL_NAME_END("{") SPECDEC__CALL_END("<tool_call|>")
     SPECDEC__CALL_VALUE_BEGIN("<|\"|>") SPECDEC__CALL_VALUE_END("<|\"|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|tool_call>call:") SPECDEC__CALL_WRITTEN_MIDDLE("{")
     SPECDEC__CALL_WRITTEN_END("}<tool_call|>")},
    {"lfm2", SPECDEC__CALLS_PYTHON, 0,
     SPECDEC__CALL_BEGIN("<|tool_call_start|>") SPECDEC__CALL_NAME_END("(") SPECDEC__CALL_END("<|tool_call_end|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|tool_call_start|>[") SPECDEC__CALL_WRITTEN_MIDDLE("(")
     SPECDEC__CALL_WRITTEN_END(")]<|tool_call_end|>")},
    {"granite", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_BEGIN("<|tool_call|>") SPECDEC__CALL_END("<|/tool_call|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|tool_call|>[{\"name\": \"") SPECDEC__CALL_WRITTEN_MIDDLE("\", \"arguments\": ")
     SPECDEC__CALL_WRITTEN_END("}]")},
    {"nemotron", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_BEGIN("<TOOLCALL>") SPECDEC__CALL_END("</TOOLCALL>")
     SPECDEC__CALL_WRITTEN_BEGIN("<TOOLCALL>[{\"name\": \"") SPECDEC__CALL_WRITTEN_MIDDLE("\", \"arguments\": ")
     SPECDEC__CALL_WRITTEN_END("}]</TOOLCALL>")},
    {"tool-calls", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_BEGIN("<tool_calls>") SPECDEC__CALL_END("</tool_calls>")
     SPECDEC__CALL_WRITTEN_BEGIN("<tool_calls>[{\"name\": \"") SPECDEC__CALL_WRITTEN_MIDDLE("\", \"arguments\": ")
     SPECDEC__CALL_WRITTEN_END("}]</tool_calls>")},
    {"command-r", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_BEGIN("<|START_ACTION|>") SPECDEC__CALL_END("<|END_ACTION|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|START_ACTION|>[\n {\"tool_call_id\": \"0\", \"tool_name\": \"")
     SPECDEC__CALL_WRITTEN_MIDDLE("\", \"parameters\": ") SPECDEC__CALL_WRITTEN_END("}\n]<|END_ACTION|>")},
    {"apertus", SPECDEC__CALLS_JSON, SPECDEC__CALLS_KEYED,
     SPECDEC__CALL_BEGIN("<|tools_prefix|>") SPECDEC__CALL_END("<|tools_suffix|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|tools_prefix|>[{\"") SPECDEC__CALL_WRITTEN_MIDDLE("\": ")
     SPECDEC__CALL_WRITTEN_END("}]<|tools_suffix|>")},
    {"gigachat", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_BEGIN("function call<|role_sep|>")
     SPECDEC__CALL_WRITTEN_BEGIN("<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"")
     SPECDEC__CALL_WRITTEN_MIDDLE("\", \"arguments\": ") SPECDEC__CALL_WRITTEN_END("}")},
    {"glm", SPECDEC__CALLS_PAIRS, 0,
     SPECDEC__CALL_BEGIN("<tool_call>") SPECDEC__CALL_NAME_END("") SPECDEC__CALL_END("</tool_call>")
     SPECDEC__CALL_KEY_BEGIN("<arg_key>") SPECDEC__CALL_KEY_END("</arg_key>") SPECDEC__CALL_VALUE_BEGIN("<arg_value>")
     SPECDEC__CALL_VALUE_END("</arg_value>") SPECDEC__CALL_WRITTEN_BEGIN("<tool_call>")
     SPECDEC__CALL_WRITTEN_MIDDLE("\n")},
    {"seed", SPECDEC__CALLS_PAIRS, SPECDEC__CALLS_LINES,
     SPECDEC__CALL_SECTION_BEGIN("<seed:tool_call>") SPECDEC__CALL_BEGIN("<function=") SPECDEC__CALL_NAME_END(">")
     SPECDEC__CALL_END("</function>") SPECDEC__CALL_SECTION_END("</seed:tool_call>")
     SPECDEC__CALL_KEY_BEGIN("<parameter=") SPECDEC__CALL_KEY_END(">") SPECDEC__CALL_VALUE_END("</parameter>")
     SPECDEC__CALL_WRITTEN_BEGIN("<seed:tool_call>\n<function=") SPECDEC__CALL_WRITTEN_MIDDLE(">\n")},
    {"qwen-coder", SPECDEC__CALLS_PAIRS, SPECDEC__CALLS_LINES,
     SPECDEC__CALL_SECTION_BEGIN("<tool_call>") SPECDEC__CALL_BEGIN("<function=") SPECDEC__CALL_NAME_END(">")
     SPECDEC__CALL_END("</function>") SPECDEC__CALL_SECTION_END("</tool_call>") SPECDEC__CALL_KEY_BEGIN("<parameter=")
     SPECDEC__CALL_KEY_END(">") SPECDEC__CALL_VALUE_END("</parameter>")
     SPECDEC__CALL_WRITTEN_BEGIN("<tool_call>\n<function=") SPECDEC__CALL_WRITTEN_MIDDLE(">\n")},
    {"minimax", SPECDEC__CALLS_PAIRS, 0,
     SPECDEC__CALL_SECTION_BEGIN("<minimax:tool_call>") SPECDEC__CALL_BEGIN("<invoke name=\"")
     SPECDEC__CALL_NAME_END("\">") SPECDEC__CALL_END("</invoke>") SPECDEC__CALL_SECTION_END("</minimax:tool_call>")
     SPECDEC__CALL_KEY_BEGIN("<parameter name=\"") SPECDEC__CALL_KEY_END("\">") SPECDEC__CALL_VALUE_END("</parameter>")
     SPECDEC__CALL_WRITTEN_BEGIN("<minimax:tool_call>\n<invoke name=\"") SPECDEC__CALL_WRITTEN_MIDDLE("\">\n")},
    {"functionary", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_BEGIN("<function=") SPECDEC__CALL_NAME_END(">") SPECDEC__CALL_END("</function>")
     SPECDEC__CALL_WRITTEN_BEGIN("<function=") SPECDEC__CALL_WRITTEN_MIDDLE(">")
     SPECDEC__CALL_WRITTEN_END("</function>")},
    {"llama3", SPECDEC__CALLS_JSON, SPECDEC__CALLS_BARE,
     SPECDEC__CALL_BEGIN("<|python_tag|>") SPECDEC__CALL_WRITTEN_BEGIN("{\"name\": \"")
     SPECDEC__CALL_WRITTEN_MIDDLE("\", \"parameters\": ") SPECDEC__CALL_WRITTEN_END("}")}};

/* How all families of models write thoughts (reasoning). */
static const specdec__thoughts specdec__thought_table[] = {
    {"think", "<think>", "</think>", {NULL}},
    {"mistral", "[THINK]", "[/THINK]", {NULL}},
    {"seed", "<seed:think>", "</seed:think>", {NULL}},
    {"minimax", "<mm:think>", "</mm:think>", {NULL}},
    {"gemma4", "<|channel>thought", "<channel|>", {NULL}},
    {"command-r", "<|START_THINKING|>", "<|END_THINKING|>", {"<|START_TEXT|>", "<|END_TEXT|>", "<|START_RESPONSE|>",
                                                             "<|END_RESPONSE|>"}},
    {"apertus", "<|inner_prefix|>", "<|inner_suffix|>", {NULL}},
    {"solar", "<|think|>", "<|end|>", {"<|begin|>assistant", "<|content|>"}},
    {"apriel", "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", {"[END FINAL RESPONSE]"}},
    {"gpt-oss", "<|channel|>analysis<|message|>", "<|end|>", {NULL}}};

/* A text of a row: SPECDEC__CALL_TEXT(row, BEGIN). NULL: the mark is not written. */
#define SPECDEC__CALL_TEXT(row, NAME) \
    specdec__row_text_of_column((row)->texts, SPECDEC__ROW_COLUMN(SPECDEC__CALL_##NAME), 0)

/* Returns the row of specdec__call_table with a name; NULL: no row has it. */
static const specdec__calls *specdec__answer_find_call_row_by_name(const char *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__call_table); i++)
        if (strcmp(specdec__call_table[i].name, name) == 0)
            return &specdec__call_table[i];
    return NULL;
}

/* Returns the row of specdec__thought_table with a name; NULL: no row has it. */
static const specdec__thoughts *specdec__answer_find_thought_row_by_name(const char *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__thought_table); i++)
        if (strcmp(specdec__thought_table[i].name, name) == 0)
            return &specdec__thought_table[i];
    return NULL;
}

SPECDEC__FOR_SPEED
