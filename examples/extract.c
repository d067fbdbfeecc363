/* extract - fields out of a text: the model answers with JSON that a schema accepts, so that a few lines read it.

   extract MODEL.gguf "Anna Smith, 34, has moved to Berlin." */
#include "specdec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Properties come in this order, without white space, strings without escapes: all that the reader below relies on. */
static const char schema[] =
    "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"name\", \"age\", \"city\"], \"properties\": {"
    "\"name\": {\"type\": \"string\", \"pattern\": \"^[A-Za-z .-]{1,40}$\"},"
    "\"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 150},"
    "\"city\": {\"type\": \"string\", \"pattern\": \"^[A-Za-z .-]{1,40}$\"}}}";

static int failed(const char *text)
{
    fprintf(stderr, "extract: %s\n", text);
    return 1;
}

/* Compiles the schema; NULL: *error says why. What is compiled is kept to the end. */
static const specdec_constraint *compile(specdec_error *error)
{
    specdec_constraint_source source = {SPECDEC_CONSTRAINT_SCHEMA, schema, sizeof schema - 1, NULL, 0, NULL, 1};
    const specdec_constraint *constraint = NULL;
    size_t bytes;

    if (!specdec_constraint_needed(&source, &bytes, error))
        specdec_constraint_init(&constraint, &source, malloc(bytes), bytes, error);
    return constraint;
}

/* Asks for the fields of a text. answer[room] becomes the JSON. */
static specdec_result ask(specdec *engine, const char *text, char *answer, size_t room)
{
    specdec_message message = {SPECDEC_USER, NULL, SPECDEC_WHOLE_STRING, 0};
    static char question[1 << 14];
    specdec_text piece;
    specdec_result result;
    size_t length = 0;

    snprintf(question, sizeof question, "Who is this text about? Give name, age and city as JSON.\n\n%s", text);
    message.text = question;
    result = specdec_chat(engine, &message, 1);
    while (!result) {
        result = specdec_next(engine, &piece); /* the last one may bring bytes, too */
        if (length + piece.length < room)
            memcpy(answer + length, piece.bytes, piece.length);
        length += piece.length;
    }
    answer[length < room ? length : 0] = 0;
    return result == SPECDEC_DONE ? SPECDEC_OK : result;
}

int main(int argc, char **argv)
{
    specdec_config config = {0};
    specdec_error error = {SPECDEC_OK, ""};
    char answer[4096], name[64], city[64];
    specdec *engine;
    size_t bytes;
    void *memory;
    int age;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return printf("usage: extract MODEL.gguf TEXT\nWrites whom a text is about: name, age and city.\n"), 0;
    if (argc != 3)
        return fprintf(stderr, "usage: extract MODEL.gguf TEXT\n"), 2;
    config.target.path = argv[1];
    config.settings.constraint = compile(&error);
    if (!config.settings.constraint || specdec_memory_needed(&config, &bytes, &error))
        return failed(error.text);
    memory = malloc(bytes);
    if (specdec_init(&engine, &config, memory, bytes, &error))
        return failed(error.text);
    if (ask(engine, argv[2], answer, sizeof answer))
        return failed(specdec_error_text(engine));
    if (sscanf(answer, "{\"name\":\"%63[^\"]\",\"age\":%d,\"city\":\"%63[^\"]\"}", name, &age, city) != 3)
        return failed("the context was too short for the answer");
    printf("name: %s\nage:  %d\ncity: %s\n", name, age, city);
    specdec_deinit(engine);
    free(memory);
    return 0;
}
