/* test_template.c - chat templates are run as Jinja runs them, in bounded time, and know which bytes come from messages. */
#define SPECDEC_NO_SIMD
#include "../src/text/template_run.h"
#include "check.h"
#include <time.h>

enum { MEMORY = 4 << 20, OUTPUT = 1 << 20 };

static specdec__template run;
static char output[OUTPUT + 1];
static unsigned char plain[OUTPUT / 8];
static union {
    void *aligned;
    unsigned char bytes[MEMORY];
} memory;

/* Renders a template that is given `messages` and `x`, both as JSON. */
static const char *render(const char *text, const char *messages, const char *x)
{
    static const char *const names[] = {"messages", "x"};
    const char *json[2];
    int i;

    json[0] = messages;
    json[1] = x;
    specdec__template_init(&run, specdec__template_as_bytes(text, strlen(text)), memory.bytes, MEMORY, output, plain,
                           OUTPUT);
    run.local_time = 20785ll * 86400 + 3661;
    for (i = 0; i < 2; i++)
        if (json[i])
            specdec__template_define_variable(
                &run, specdec__template_string_value(names[i]),
                specdec__template_read_json(&run, specdec__template_as_bytes(json[i], strlen(json[i]))));
    specdec__template_render(&run);
    output[run.output_bytes] = 0;
    return run.failed ? run.failed : output;
}

typedef struct rendering {
    const char *text, *x, *expected; /* expected NULL: it fails */
} rendering;

/* What Jinja 3.1.6 writes, set as transformers sets it. */
static const rendering renderings[] = {
    {"{{ x }}", "[1, 2.5, \"a'b\", null, true, {\"k\": []}]", "[1, 2.5, \"a'b\", None, True, {'k': []}]"},
    {"{{ x|tojson }}", "{\"b\": [1, \"\\u00e4\\n\"], \"a\": null}", "{\"b\": [1, \"\xc3\xa4\\n\"], \"a\": null}"},
    {"{{ x|tojson(indent=2) }}", "{\"b\": [1], \"a\": {}}", "{\n  \"b\": [\n    1\n  ],\n  \"a\": {}\n}"},
    {"{{ x|tojson(separators=(',', ':'), sort_keys=true) }}", "{\"b\": [1, 2], \"a\": {}}", "{\"a\":{},\"b\":[1,2]}"},
    {"{{ x|tojson(ensure_ascii=True) }}", "\"\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\""},
    {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", NULL, "a\n  b\nc"},
    {"a  {%- if true -%}  b  {%- endif -%}  c", NULL, "abc"},
    {"  {%+ if true %}b{% endif +%}\nc", NULL, "  b\nc"},
    {"a{# b #}\n{{ 1 }}\n", NULL, "a1"},
    {"{% raw %}{{ x }}{% endraw %}", NULL, "{{ x }}"},
    {"{% for a in x if a > 1 %}{{ loop.index }}/{{ loop.length }}:{{ a }}{% if not loop.last %}, {% endif %}{% else %}-{% endfor %}",
     "[1, 2, 3]", "1/2:2, 2/2:3"},
    {"{% for a in x if a > 9 %}{{ a }}{% else %}none{% endfor %}", "[1, 2, 3]", "none"},
    {"{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}", "{\"a\": 1, \"b\": 2}", "a=1;b=2;"},
    {"{% for k in x %}{{ k }}{% if loop.first %}{% continue %}{% endif %}{% break %}{% endfor %}", "[1, 2, 3]", "12"},
    {"{% set n = namespace(a=1) %}{% for i in range(3) %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}", NULL, "4"},
    {"{% set a = 1 %}{% for i in range(3) %}{% set a = a + 1 %}{% endfor %}{{ a }}", NULL, "1"},
    {"{% set a %}<{{ 1 }}>{% endset %}{{ a }}{% set a, b = 1, 2 %}{{ a + b }}", NULL, "<1>3"},
    {"{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}", NULL, "121;123;"},
    {"{% macro m() %}[{{ caller('x') }}]{% endmacro %}{% call(a) m() %}{{ a }}y{% endcall %}", NULL, "[xy]"},
    {"{% filter upper|trim %} ab {% endfilter %}", NULL, "AB"},
    {"{{ 'a' if x else 'b' }}{{ 'c' if x }}", "0", "b"},
    {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 2 in [1, 2] }} {{ 3 not in [1, 2] }}", NULL, "True False True True"},
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 'ab' * 2 }}", NULL, "3 -4 2 3.5 1024 abab"},
    {"{{ x[1:] }}{{ x[::-1] }}{{ x[-2] }}{{ x[:-1:2] }}", "\"h\xc3\xa4llo\"", "\xc3\xa4llooll\xc3\xa4hlhl"},
    {"{{ x[-1] }}{{ x[1:][0] }}{{ x[9] }}{{ x|first }}{{ x|last }}", "[1, 2, 3]", "3213"},
    {"{{ ' a b  c '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}", NULL,
     "['a', 'b', 'c']['a', 'b,c']['a,b', 'c']"},
    {"{{ x|selectattr('r', 'equalto', 1)|map(attribute='n')|join('-') }}",
     "[{\"r\": 1, \"n\": \"a\"}, {\"r\": 2, \"n\": \"b\"}, {\"r\": 1, \"n\": \"c\"}]", "a-c"},
    {"{{ x|dictsort }}{{ x|length }}{{ x|items|list }}", "{\"b\": 1, \"A\": 2}", "[('A', 2), ('b', 1)]2[('b', 1), ('A', 2)]"},
    {"{{ x|indent(2) }}|{{ x|indent(2, true) }}", "\"a\\nb\\n\\nc\"", "a\n  b\n\n  c|  a\n  b\n\n  c"},
    {"{{ nothing is defined }}{{ nothing }}{{ nothing|default('d') }}{{ x is mapping }}{{ x is string }}", "{}", "FalsedTrueFalse"},
    {"{{ 'Use '|safe + x }}", "\"<a>\"", "Use &lt;a&gt;"},
    {"{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %j') }}", NULL, "2026-11-28 01:01:01 November Nov Saturday 332"},
    {"{{ x.a.b }}{{ x['c'] }}{{ x.get('d', 4) }}", "{\"a\": {\"b\": 1}, \"c\": 2}", "124"},
    {"{{ 'a' 'b' ~ 1 ~ none }}{{ 0.1 + 0.2 }}{{ 1e20 }}", NULL, "ab1None0.300000000000000041e+20"},
    {"  {% if true %}b{% endif %}", NULL, "b"},
    {"{% if true %}  {% endif %}x", NULL, "  x"},
    {"{% if true %}\n  {% endif %}x", NULL, "x"},
    {"  {{ 1 }}{# \n #} \t{# c #}x", NULL, "  1 \tx"},
    {"{{ nothing.a }}", NULL, NULL}, {"{{ 'a' + 1 }}", NULL, NULL}, {"{{ x.append(1) }}", "[]", NULL}, {"{{ 1|nofilter }}", NULL, NULL},
    {"{{ none|tojson|length }}{{ nothing|tojson }}", NULL, NULL}, {"{% if %}{% endif %}", NULL, NULL}, {"{% endif %}", NULL, NULL},
    {"{% set x.y = 1 %}", "{}", NULL}};

static void test_renderings(void)
{
    size_t i;

    TEST("templates are rendered as Jinja renders them, and fail where it fails");
    for (i = 0; i < SPECDEC__COUNT(renderings); i++) {
        const rendering *r = &renderings[i];
        const char *written = render(r->text, "[]", r->x);
        const int same = r->expected ? !run.failed && !strcmp(written, r->expected) : run.failed != NULL;

        CHECK(same);
        if (!same)
            fprintf(stderr, "%s: %s\n", r->text, written);
    }
    TEST("an error names line and column, and what the template says itself");
    render("a\n b{{ raise_exception('no ' ~ x) }}", NULL, "\"user\"");
    CHECK(run.raised && run.line == 2 && run.column >= 3 && specdec__bytes_equal_string(run.culprit, "no user"));
    render("a\n\n  {{ 1 + }}", NULL, NULL);
    CHECK(run.failed && !run.raised && run.line == 3 && run.column >= 8);
}

/* What was written, with brackets around the bytes that come from messages. */
static const char *marked(const char *text, const char *messages)
{
    static char out[4096];
    size_t i, size = 0;
    int inside = 0;

    render(text, messages, NULL);
    for (i = 0; i <= run.output_bytes && size + 4 < sizeof out; i++) {
        const int now = i < run.output_bytes && specdec__template_get_bit(plain, i);

        if (now != inside)
            out[size++] = now ? '[' : ']';
        inside = now;
        if (i < run.output_bytes)
            out[size++] = output[i];
    }
    out[size] = 0;
    return run.failed ? run.failed : out;
}

static void test_marks(void)
{
    static const char m[] = "[{\"role\": \"user\", \"content\": \" Hi <x> \"}, {\"role\": \"evil\", \"content\": \"a\\nb\"}]";
    static const struct { const char *text, *expected; } cases[] = {
        {"<{{ messages[0].role }}>{{ messages[0].content }}", "<user>[ Hi <x> ]"},
        {"<{{ messages[1].role }}>", "<[evil]>"},
        {"{{ '<' + messages[0].content|trim + '>' }}", "<[Hi <x>]>"},
        {"{{ messages[0].content.replace('<', '{')|upper }}", "[ HI ]{[X> ]"},
        {"{% set a = messages[0].content.split() %}{{ a|join('-') }}{{ a[1][1:] }}", "[Hi]-[<x>x>]"},
        {"{{ messages[1].content|indent(2) }}", "[a]\n  [b]"},
        {"{{ messages[1].content|tojson }}", "\"[a\\nb]\""},
        {"{{ [messages[1].content] }}", "['[a\\nb]']"},
        {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(messages[1].content[0]) ~ '!' }}", "<[a]>!"},
        {"{% set b %}<{{ messages[1].content[2] }}>{% endset %}{{ b }}{{ b[::-1] }}", "<[b]>>[b]<"},
        {"{{ '%s!' % messages[1].content[0] }}{{ '{}?'.format(messages[1].content[0]) }}", "[a]![a]?"},
        {"{% for c in messages[1].content %}{{ c }}.{% endfor %}", "[a].[\n].[b]."},
        {"{% filter upper %}x{{ messages[1].content[0] }}{% endfilter %}", "X[A]"}};
    size_t i;

    TEST("bytes that come from messages are told from those that the template writes, whatever filters do");
    for (i = 0; i < SPECDEC__COUNT(cases); i++) {
        const char *written = marked(cases[i].text, m);

        CHECK(!strcmp(written, cases[i].expected));
        if (strcmp(written, cases[i].expected))
            fprintf(stderr, "%s: %s\n", cases[i].text, written);
    }
}

static void test_bounds(void)
{
    static const char *const texts[] = {
        "{% for a in range(1000000) %}{% endfor %}", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "{% set s = 'x' * 1000000 %}{% for a in range(1000) %}{{ s }}{% endfor %}",
        "{% set n = namespace(s='x') %}{% for a in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
        "{{ 'x' * 9000000000000000000 }}", "{{ [1] * 900000000 }}", "{{ range(0, 99999)|list|sort|join(',')|sort|list|sort }}",
        "{% set s = 'ab' * 100000 %}{% for a in range(1000) %}{{ s.replace('a', 'bb')|length }}{% endfor %}",
        "{% for a in range(99999) %}{{ ('x' * 3000).find('xxxxxxxxxxxxxxy') }}{% endfor %}"};
    char deep[8192];
    size_t i;
    clock_t from;

    TEST("no template takes long or much, and what is too deep is refused");
    for (i = 0; i < SPECDEC__COUNT(texts); i++) {
        from = clock();
        render(texts[i], "[]", NULL);
        CHECK(run.failed != NULL);
        CHECK(clock() - from < 5 * CLOCKS_PER_SEC);
    }
    for (i = 0; i < 3; i++) {
        memset(deep, "([-"[i], sizeof deep - 1);
        deep[sizeof deep - 1] = 0;
        memcpy(deep, "{{ ", 3);
        render(deep, "[]", NULL);
        CHECK(run.failed != NULL);
    }
    for (i = 0; i + 16 < sizeof deep; i += 12)
        memcpy(deep + i, "{% if true %}", 13);
    deep[i] = 0;
    render(deep, "[]", NULL);
    CHECK(run.failed != NULL);
    TEST("with too little memory a template fails, whatever the amount is");
    for (i = 0; i < 6000; i += 8) {
        specdec__template_init(&run, specdec__template_as_bytes(renderings[10].text, strlen(renderings[10].text)),
                               memory.bytes, i, output, plain, i % 64);
        specdec__template_define_variable(&run, specdec__template_string_value("x"), specdec__template_integer_value(1));
        specdec__template_render(&run);
        CHECK(run.failed != NULL && run.output_bytes <= i % 64);
    }
}

int main(void)
{
    test_renderings();
    test_marks();
    test_bounds();
    return check_report("test_template");
}
