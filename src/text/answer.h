/* =====================================================================================================================
 * >>text/answer: how models write answers: tables of the marks around thoughts and calls of tools.
 * ================================================================================================================== */

#pragma once
#include "../base/base.h"
#include "json.h"

SPECDEC__FOR_SIZE

/* Forms of tool calls: how the name and the arguments of a call are written. */
enum {
    SPECDEC__CALLS_JSON,    /* a JSON object with name and arguments, or a list of such objects */
    SPECDEC__CALLS_NAMED,   /* the name, then the arguments as a JSON object */
    SPECDEC__CALLS_PAIRS,   /* the name, then name and value of each argument between marks */
    SPECDEC__CALLS_PYTHON,  /* name(argument=value, ...) */
    SPECDEC__CALLS_BRACES,  /* name{argument:value,...}, with strings between marks */
    SPECDEC__CALLS_CHANNEL  /* messages with headers (gpt-oss's Harmony format) */
};

/* Flags of a row of specdec__call_table. */
enum {
    SPECDEC__CALLS_KEYED = 1, /* JSON: {NAME: arguments} */
    SPECDEC__CALLS_BARE = 2,  /* JSON: no mark; the answer begins with an object that is a call */
    SPECDEC__CALLS_PATH = 4,  /* the name is written as functions.NAME, and may be followed by a colon and a number */
    SPECDEC__CALLS_LINES = 8  /* the value of an argument may stand between line ends */
};

/* Texts of a row of specdec__call_table. */
#define SPECDEC__CALL_SECTION(text) SPECDEC__ROW_TEXT("s", text) /* in front of all calls */
#define SPECDEC__CALL_MARK(text) SPECDEC__ROW_TEXT("m", text)    /* in front of each call */
#define SPECDEC__CALL_ID(text) SPECDEC__ROW_TEXT("i", text)      /* between a call's identifier and its name */
#define SPECDEC__CALL_MIDDLE(text) SPECDEC__ROW_TEXT("n", text)  /* between name and arguments; "": space or "<" */
#define SPECDEC__CALL_CLOSE(text) SPECDEC__ROW_TEXT("c", text)   /* behind a call */
#define SPECDEC__CALL_END(text) SPECDEC__ROW_TEXT("e", text)     /* behind all calls */
#define SPECDEC__CALL_KEY_BEGIN(text) SPECDEC__ROW_TEXT("k", text) /* around an argument's name */
#define SPECDEC__CALL_KEY_END(text) SPECDEC__ROW_TEXT("K", text)
#define SPECDEC__CALL_VALUE_BEGIN(text) SPECDEC__ROW_TEXT("v", text) /* around an argument's value */
#define SPECDEC__CALL_VALUE_END(text) SPECDEC__ROW_TEXT("V", text)
#define SPECDEC__CALL_BEGIN(text) SPECDEC__ROW_TEXT("b", text)   /* for writing a call: in front of its name; */
#define SPECDEC__CALL_BEHIND(text) SPECDEC__ROW_TEXT("w", text)  /* between name and arguments; */
#define SPECDEC__CALL_FINISH(text) SPECDEC__ROW_TEXT("f", text)  /* behind the arguments */

/* How a family of models writes tool calls. */
typedef struct specdec__calls {
    const char *name;
    int form, flags; /* SPECDEC__CALLS_... */
    const char *texts; /* the marks that the family writes: SPECDEC__CALL_... */
} specdec__calls;

/* How a family of models writes thoughts (reasoning): between two marks. */
typedef struct specdec__thoughts {
    const char *name, *open, *close;
    const char *content_marks[4]; /* marks around the content of the answer, which are dropped */
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

/* Tool calls of all families. A chat template gets the first row that parses the call that the template writes. */
static const specdec__calls specdec__call_table[] = {
    {"hermes", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_MARK("<tool_call>") SPECDEC__CALL_CLOSE("</tool_call>")
     SPECDEC__CALL_BEGIN("<tool_call>\n{\"name\": \"") SPECDEC__CALL_BEHIND("\", \"arguments\": ")
     SPECDEC__CALL_FINISH("}\n</tool_call>")},
    {"mistral", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_MARK("[TOOL_CALLS]") SPECDEC__CALL_MIDDLE("[ARGS]") SPECDEC__CALL_BEGIN("[TOOL_CALLS]")
     SPECDEC__CALL_BEHIND("[ARGS]") SPECDEC__CALL_FINISH("")},
    {"mistral-list", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_MARK("[TOOL_CALLS]") SPECDEC__CALL_BEGIN("[TOOL_CALLS][{\"name\": \"")
     SPECDEC__CALL_BEHIND("\", \"arguments\": ") SPECDEC__CALL_FINISH("}]")},
    {"deepseek-r1", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_SECTION(SPECDEC__DEEPSEEK_CALLS_BEGIN)
     SPECDEC__CALL_MARK(SPECDEC__DEEPSEEK_CALL_BEGIN "function" SPECDEC__DEEPSEEK_CALL_SEP)
     SPECDEC__CALL_MIDDLE("\n```json\n") SPECDEC__CALL_CLOSE("```" SPECDEC__DEEPSEEK_CALL_END)
     SPECDEC__CALL_END(SPECDEC__DEEPSEEK_CALLS_END)
     SPECDEC__CALL_BEGIN(SPECDEC__DEEPSEEK_CALLS_BEGIN SPECDEC__DEEPSEEK_CALL_BEGIN "function"
        SPECDEC__DEEPSEEK_CALL_SEP) SPECDEC__CALL_BEHIND("\n```json\n")
     SPECDEC__CALL_FINISH("\n```" SPECDEC__DEEPSEEK_CALL_END SPECDEC__DEEPSEEK_CALLS_END)},
    {"deepseek-v3", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_SECTION(SPECDEC__DEEPSEEK_CALLS_BEGIN) SPECDEC__CALL_MARK(SPECDEC__DEEPSEEK_CALL_BEGIN)
     SPECDEC__CALL_MIDDLE(SPECDEC__DEEPSEEK_CALL_SEP) SPECDEC__CALL_CLOSE(SPECDEC__DEEPSEEK_CALL_END)
     SPECDEC__CALL_END(SPECDEC__DEEPSEEK_CALLS_END)
     SPECDEC__CALL_BEGIN(SPECDEC__DEEPSEEK_CALLS_BEGIN SPECDEC__DEEPSEEK_CALL_BEGIN)
     SPECDEC__CALL_BEHIND(SPECDEC__DEEPSEEK_CALL_SEP)
     SPECDEC__CALL_FINISH(SPECDEC__DEEPSEEK_CALL_END SPECDEC__DEEPSEEK_CALLS_END)},
    {"deepseek-v4", SPECDEC__CALLS_PAIRS, 0,
     SPECDEC__CALL_SECTION(SPECDEC__DSML "tool_calls>") SPECDEC__CALL_MARK(SPECDEC__DSML "invoke name=\"")
     SPECDEC__CALL_MIDDLE("\">") SPECDEC__CALL_CLOSE(SPECDEC__DSML_END "invoke>")
     SPECDEC__CALL_END(SPECDEC__DSML_END "tool_calls>") SPECDEC__CALL_KEY_BEGIN(SPECDEC__DSML "parameter name=\"")
     SPECDEC__CALL_KEY_END(">") SPECDEC__CALL_VALUE_END(SPECDEC__DSML_END "parameter>")
     SPECDEC__CALL_BEGIN(SPECDEC__DSML "tool_calls>\n" SPECDEC__DSML "invoke name=\"") SPECDEC__CALL_BEHIND("\">\n")},
    {"kimi", SPECDEC__CALLS_NAMED, SPECDEC__CALLS_PATH,
     SPECDEC__CALL_SECTION("<|tool_calls_section_begin|>") SPECDEC__CALL_MARK("<|tool_call_begin|>")
     SPECDEC__CALL_MIDDLE("<|tool_call_argument_begin|>") SPECDEC__CALL_CLOSE("<|tool_call_end|>")
     SPECDEC__CALL_END("<|tool_calls_section_end|>")
     SPECDEC__CALL_BEGIN("<|tool_calls_section_begin|><|tool_call_begin|>functions.")
     SPECDEC__CALL_BEHIND(":0<|tool_call_argument_begin|>")
     SPECDEC__CALL_FINISH("<|tool_call_end|><|tool_calls_section_end|>")},
    {"solar", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_SECTION("<|tool_calls|>") SPECDEC__CALL_MARK("<|tool_call:begin|>")
     SPECDEC__CALL_ID("<|tool_call:name|>") SPECDEC__CALL_MIDDLE("<|tool_call:args|>")
     SPECDEC__CALL_CLOSE("<|tool_call:end|>") SPECDEC__CALL_END("<|calls|>")
     SPECDEC__CALL_BEGIN("<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>")
     SPECDEC__CALL_BEHIND("<|tool_call:args|>") SPECDEC__CALL_FINISH("<|tool_call:end|><|calls|>")},
    {"gpt-oss", SPECDEC__CALLS_CHANNEL, 0,
     SPECDEC__CALL_MARK("<|start|>") SPECDEC__CALL_MIDDLE("<|message|>") SPECDEC__CALL_CLOSE("<|call|>")
     SPECDEC__CALL_END("<|end|>") SPECDEC__CALL_BEGIN("<|channel|>commentary to=functions.")
     SPECDEC__CALL_BEHIND(" <|constrain|>json<|message|>") SPECDEC__CALL_FINISH("<|call|>")},
    {"gemma4", SPECDEC__CALLS_BRACES, 0,
     SPECDEC__CALL_MARK("<|tool_call>call:") SPECDEC__CALL_MIDDLE("{") SPECDEC__CALL_CLOSE("<tool_call|>")
     SPECDEC__CALL_VALUE_BEGIN("<|\"|>") SPECDEC__CALL_VALUE_END("<|\"|>") SPECDEC__CALL_BEGIN("<|tool_call>call:")
     SPECDEC__CALL_BEHIND("{") SPECDEC__CALL_FINISH("}<tool_call|>")},
    {"lfm2", SPECDEC__CALLS_PYTHON, 0,
     SPECDEC__CALL_MARK("<|tool_call_start|>") SPECDEC__CALL_MIDDLE("(") SPECDEC__CALL_CLOSE("<|tool_call_end|>")
     SPECDEC__CALL_BEGIN("<|tool_call_start|>[") SPECDEC__CALL_BEHIND("(") SPECDEC__CALL_FINISH(")]<|tool_call_end|>")},
    {"granite", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_MARK("<|tool_call|>") SPECDEC__CALL_CLOSE("<|/tool_call|>")
     SPECDEC__CALL_BEGIN("<|tool_call|>[{\"name\": \"") SPECDEC__CALL_BEHIND("\", \"arguments\": ")
     SPECDEC__CALL_FINISH("}]")},
    {"nemotron", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_MARK("<TOOLCALL>") SPECDEC__CALL_CLOSE("</TOOLCALL>") SPECDEC__CALL_BEGIN("<TOOLCALL>[{\"name\": \"")
     SPECDEC__CALL_BEHIND("\", \"arguments\": ") SPECDEC__CALL_FINISH("}]</TOOLCALL>")},
    {"tool-calls", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_MARK("<tool_calls>") SPECDEC__CALL_CLOSE("</tool_calls>")
     SPECDEC__CALL_BEGIN("<tool_calls>[{\"name\": \"") SPECDEC__CALL_BEHIND("\", \"arguments\": ")
     SPECDEC__CALL_FINISH("}]</tool_calls>")},
    {"command-r", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_MARK("<|START_ACTION|>") SPECDEC__CALL_CLOSE("<|END_ACTION|>")
     SPECDEC__CALL_BEGIN("<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"")
     SPECDEC__CALL_BEHIND("\", \"parameters\": ") SPECDEC__CALL_FINISH("}\n]<|END_ACTION|>")},
    {"apertus", SPECDEC__CALLS_JSON, SPECDEC__CALLS_KEYED,
     SPECDEC__CALL_MARK("<|tools_prefix|>") SPECDEC__CALL_CLOSE("<|tools_suffix|>")
     SPECDEC__CALL_BEGIN("<|tools_prefix|>[{\"") SPECDEC__CALL_BEHIND("\": ")
     SPECDEC__CALL_FINISH("}]<|tools_suffix|>")},
    {"gigachat", SPECDEC__CALLS_JSON, 0,
     SPECDEC__CALL_MARK("function call<|role_sep|>")
     SPECDEC__CALL_BEGIN("<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"")
     SPECDEC__CALL_BEHIND("\", \"arguments\": ") SPECDEC__CALL_FINISH("}")},
    {"glm", SPECDEC__CALLS_PAIRS, 0,
     SPECDEC__CALL_MARK("<tool_call>") SPECDEC__CALL_MIDDLE("") SPECDEC__CALL_CLOSE("</tool_call>")
     SPECDEC__CALL_KEY_BEGIN("<arg_key>") SPECDEC__CALL_KEY_END("</arg_key>") SPECDEC__CALL_VALUE_BEGIN("<arg_value>")
     SPECDEC__CALL_VALUE_END("</arg_value>") SPECDEC__CALL_BEGIN("<tool_call>") SPECDEC__CALL_BEHIND("\n")},
    {"seed", SPECDEC__CALLS_PAIRS, SPECDEC__CALLS_LINES,
     SPECDEC__CALL_SECTION("<seed:tool_call>") SPECDEC__CALL_MARK("<function=") SPECDEC__CALL_MIDDLE(">")
     SPECDEC__CALL_CLOSE("</function>") SPECDEC__CALL_END("</seed:tool_call>") SPECDEC__CALL_KEY_BEGIN("<parameter=")
     SPECDEC__CALL_KEY_END(">") SPECDEC__CALL_VALUE_END("</parameter>")
     SPECDEC__CALL_BEGIN("<seed:tool_call>\n<function=") SPECDEC__CALL_BEHIND(">\n")},
    {"qwen-coder", SPECDEC__CALLS_PAIRS, SPECDEC__CALLS_LINES,
     SPECDEC__CALL_SECTION("<tool_call>") SPECDEC__CALL_MARK("<function=") SPECDEC__CALL_MIDDLE(">")
     SPECDEC__CALL_CLOSE("</function>") SPECDEC__CALL_END("</tool_call>") SPECDEC__CALL_KEY_BEGIN("<parameter=")
     SPECDEC__CALL_KEY_END(">") SPECDEC__CALL_VALUE_END("</parameter>") SPECDEC__CALL_BEGIN("<tool_call>\n<function=")
     SPECDEC__CALL_BEHIND(">\n")},
    {"minimax", SPECDEC__CALLS_PAIRS, 0,
     SPECDEC__CALL_SECTION("<minimax:tool_call>") SPECDEC__CALL_MARK("<invoke name=\"") SPECDEC__CALL_MIDDLE("\">")
     SPECDEC__CALL_CLOSE("</invoke>") SPECDEC__CALL_END("</minimax:tool_call>")
     SPECDEC__CALL_KEY_BEGIN("<parameter name=\"") SPECDEC__CALL_KEY_END("\">") SPECDEC__CALL_VALUE_END("</parameter>")
     SPECDEC__CALL_BEGIN("<minimax:tool_call>\n<invoke name=\"") SPECDEC__CALL_BEHIND("\">\n")},
    {"functionary", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__CALL_MARK("<function=") SPECDEC__CALL_MIDDLE(">") SPECDEC__CALL_CLOSE("</function>")
     SPECDEC__CALL_BEGIN("<function=") SPECDEC__CALL_BEHIND(">") SPECDEC__CALL_FINISH("</function>")},
    {"llama3", SPECDEC__CALLS_JSON, SPECDEC__CALLS_BARE,
     SPECDEC__CALL_MARK("<|python_tag|>") SPECDEC__CALL_BEGIN("{\"name\": \"")
     SPECDEC__CALL_BEHIND("\", \"parameters\": ") SPECDEC__CALL_FINISH("}")}};

/* Thoughts of all families. */
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

/* A text of a row: SPECDEC__CALL_TEXT(row, MARK). NULL: the mark is not written. */
#define SPECDEC__CALL_TEXT(row, NAME) specdec__row_text((row)->texts, SPECDEC__ROW_COLUMN(SPECDEC__CALL_##NAME), 0)

/* The row of tool calls with a name; NULL: there is none. */
static const specdec__calls *specdec__answer_find_calls(const char *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__call_table); i++)
        if (strcmp(specdec__call_table[i].name, name) == 0)
            return &specdec__call_table[i];
    return NULL;
}

/* The row of thoughts with a name; NULL: there is none. */
static const specdec__thoughts *specdec__answer_find_thoughts(const char *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__thought_table); i++)
        if (strcmp(specdec__thought_table[i].name, name) == 0)
            return &specdec__thought_table[i];
    return NULL;
}

SPECDEC__FOR_SPEED
