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

/* How a family of models writes tool calls: the texts (marks) around the calls and around their parts. NULL: the model
   does not write the mark. */
typedef struct specdec__calls {
    const char *name;                    /* name of this way of writing calls, such as "hermes" */
    int form, flags;                     /* SPECDEC__CALLS_JSON to _CHANNEL; bits SPECDEC__CALLS_KEYED to _LINES */
    const char *section_begin;           /* mark in front of all calls of an answer */
    const char *call_begin;              /* mark in front of each call */
    const char *id_end;                  /* mark between a call's identifier and the tool's name */
    const char *name_end;                /* mark between the tool's name and the arguments; "": white space or "<" */
    const char *call_end, *section_end;  /* mark behind each call; mark behind all calls of an answer */
    const char *key_begin, *key_end;     /* marks around an argument's name */
    const char *value_begin, *value_end; /* marks around an argument's value */
    const char *written_begin;           /* text in front of the tool's name where the engine writes a call */
    const char *written_middle;          /* text between name and arguments where the engine writes a call */
    const char *written_end;             /* text behind the arguments where the engine writes a call */
} specdec__calls;

/* How a family of models writes thoughts (reasoning): between two marks. */
typedef struct specdec__thoughts {
    const char *name;             /* name of this way of writing thoughts, such as "think" */
    const char *open, *close;     /* marks in front of a thought and behind it */
    const char *content_marks[4]; /* marks around the content of the answer; the splitter leaves them out */
} specdec__thoughts;

#define SPECDEC__BAR "\xef\xbd\x9c" /* DeepSeek's full-width bar, U+FF5C, and its lower block, U+2581 */
#define SPECDEC__BLOCK "\xe2\x96\x81"
#define SPECDEC__DEEPSEEK(words) "<" SPECDEC__BAR words SPECDEC__BAR ">"

/* How all families of models write tool calls. A chat template gets the first row whose marks parse the tool call that
   the template writes. */
static const specdec__calls specdec__call_table[] = {
    {"hermes", SPECDEC__CALLS_JSON, 0, NULL, "<tool_call>", NULL, NULL, "</tool_call>", NULL, NULL, NULL, NULL, NULL,
     "<tool_call>\n{\"name\": \"", "\", \"arguments\": ", "}\n</tool_call>"},
    {"mistral", SPECDEC__CALLS_NAMED, 0, NULL, "[TOOL_CALLS]", NULL, "[ARGS]", NULL, NULL, NULL, NULL, NULL, NULL,
     "[TOOL_CALLS]", "[ARGS]", ""},
    {"mistral-list", SPECDEC__CALLS_JSON, 0, NULL, "[TOOL_CALLS]", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     "[TOOL_CALLS][{\"name\": \"", "\", \"arguments\": ", "}]"},
    {"deepseek-r1", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "begin"),
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "begin") "function"
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "sep"), NULL, "\n```json\n",
     "```" SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "end"),
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "end"), NULL, NULL, NULL, NULL,
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "begin")
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "begin") "function"
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "sep"), "\n```json\n",
     "\n```" SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "end")
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "end")},
    {"deepseek-v3", SPECDEC__CALLS_NAMED, 0,
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "begin"),
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "begin"), NULL,
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "sep"),
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "end"),
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "end"), NULL, NULL, NULL, NULL,
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "begin")
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "begin"),
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "sep"),
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "call" SPECDEC__BLOCK "end")
     SPECDEC__DEEPSEEK("tool" SPECDEC__BLOCK "calls" SPECDEC__BLOCK "end")},
    {"deepseek-v4", SPECDEC__CALLS_PAIRS, 0, "<" SPECDEC__BAR "DSML" SPECDEC__BAR "tool_calls>",
     "<" SPECDEC__BAR "DSML" SPECDEC__BAR "invoke name=\"", NULL, "\">",
     "</" SPECDEC__BAR "DSML" SPECDEC__BAR "invoke>", "</" SPECDEC__BAR "DSML" SPECDEC__BAR "tool_calls>",
     "<" SPECDEC__BAR "DSML" SPECDEC__BAR "parameter name=\"", ">", NULL,
     "</" SPECDEC__BAR "DSML" SPECDEC__BAR "parameter>",
     "<" SPECDEC__BAR "DSML" SPECDEC__BAR "tool_calls>\n<" SPECDEC__BAR "DSML" SPECDEC__BAR "invoke name=\"", "\">\n",
     NULL},
    {"kimi", SPECDEC__CALLS_NAMED, SPECDEC__CALLS_PATH, "<|tool_calls_section_begin|>", "<|tool_call_begin|>", NULL,
     "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>", NULL, NULL, NULL, NULL,
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>",
     "<|tool_call_end|><|tool_calls_section_end|>"},
    {"solar", SPECDEC__CALLS_NAMED, 0, "<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:name|>",
     "<|tool_call:args|>", "<|tool_call:end|>", "<|calls|>", NULL, NULL, NULL, NULL,
     "<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|><|calls|>"},
    {"gpt-oss", SPECDEC__CALLS_CHANNEL, 0, NULL, "<|start|>", NULL, "<|message|>", "<|call|>", "<|end|>", NULL, NULL,
     NULL, NULL, "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>"},
    {"gemma4", SPECDEC__CALLS_BRACES, 0, NULL, "<|tool_call>call:", NULL, "{", "<tool_call|>", NULL, NULL, NULL,
     "<|\"|>", "<|\"|>", "<|tool_call>call:", "{", "}<tool_call|>"},
    {"lfm2", SPECDEC__CALLS_PYTHON, 0, NULL, "<|tool_call_start|>", NULL, "(", "<|tool_call_end|>", NULL, NULL, NULL,
     NULL, NULL, "<|tool_call_start|>[", "(", ")]<|tool_call_end|>"},
    {"granite", SPECDEC__CALLS_JSON, 0, NULL, "<|tool_call|>", NULL, NULL, "<|/tool_call|>", NULL, NULL, NULL, NULL,
     NULL, "<|tool_call|>[{\"name\": \"", "\", \"arguments\": ", "}]"},
    {"nemotron", SPECDEC__CALLS_JSON, 0, NULL, "<TOOLCALL>", NULL, NULL, "</TOOLCALL>", NULL, NULL, NULL, NULL, NULL,
     "<TOOLCALL>[{\"name\": \"", "\", \"arguments\": ", "}]</TOOLCALL>"},
    {"tool-calls", SPECDEC__CALLS_JSON, 0, NULL, "<tool_calls>", NULL, NULL, "</tool_calls>", NULL, NULL, NULL, NULL,
     NULL, "<tool_calls>[{\"name\": \"", "\", \"arguments\": ", "}]</tool_calls>"},
    {"command-r", SPECDEC__CALLS_JSON, 0, NULL, "<|START_ACTION|>", NULL, NULL, "<|END_ACTION|>", NULL, NULL, NULL,
     NULL, NULL, "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"", "\", \"parameters\": ",
     "}\n]<|END_ACTION|>"},
    {"apertus", SPECDEC__CALLS_JSON, SPECDEC__CALLS_KEYED, NULL, "<|tools_prefix|>", NULL, NULL, "<|tools_suffix|>",
     NULL, NULL, NULL, NULL, NULL, "<|tools_prefix|>[{\"", "\": ", "}]<|tools_suffix|>"},
    {"gigachat", SPECDEC__CALLS_JSON, 0, NULL, "function call<|role_sep|>", NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, "<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"", "\", \"arguments\": ", "}"},
    {"glm", SPECDEC__CALLS_PAIRS, 0, NULL, "<tool_call>", NULL, "", "</tool_call>", NULL, "<arg_key>", "</arg_key>",
     "<arg_value>", "</arg_value>", "<tool_call>", "\n", NULL},
    {"seed", SPECDEC__CALLS_PAIRS, SPECDEC__CALLS_LINES, "<seed:tool_call>", "<function=", NULL, ">", "</function>",
     "</seed:tool_call>", "<parameter=", ">", NULL, "</parameter>", "<seed:tool_call>\n<function=", ">\n", NULL},
    {"qwen-coder", SPECDEC__CALLS_PAIRS, SPECDEC__CALLS_LINES, "<tool_call>", "<function=", NULL, ">", "</function>",
     "</tool_call>", "<parameter=", ">", NULL, "</parameter>", "<tool_call>\n<function=", ">\n", NULL},
    {"minimax", SPECDEC__CALLS_PAIRS, 0, "<minimax:tool_call>", "<invoke name=\"", NULL, "\">", "</invoke>",
     "</minimax:tool_call>", "<parameter name=\"", "\">", NULL, "</parameter>",
     "<minimax:tool_call>\n<invoke name=\"", "\">\n", NULL},
    {"functionary", SPECDEC__CALLS_NAMED, 0, NULL, "<function=", NULL, ">", "</function>", NULL, NULL, NULL, NULL,
     NULL, "<function=", ">", "</function>"},
    {"llama3", SPECDEC__CALLS_JSON, SPECDEC__CALLS_BARE, NULL, "<|python_tag|>", NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL, "{\"name\": \"", "\", \"parameters\": ", "}"}};

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

/* Returns the row of specdec__call_table with a name; NULL: no row has it. */
static const specdec__calls *specdec__answer_find_calls(const char *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__call_table); i++)
        if (strcmp(specdec__call_table[i].name, name) == 0)
            return &specdec__call_table[i];
    return NULL;
}

/* Returns the row of specdec__thought_table with a name; NULL: no row has it. */
static const specdec__thoughts *specdec__answer_find_thoughts(const char *name)
{
    size_t i;

    for (i = 0; i < SPECDEC__COUNT(specdec__thought_table); i++)
        if (strcmp(specdec__thought_table[i].name, name) == 0)
            return &specdec__thought_table[i];
    return NULL;
}

SPECDEC__FOR_SPEED
