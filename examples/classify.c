/* classify - which of some labels goes best behind a text? All labels are tried in one step, as the branches of a tree.

   classify MODEL.gguf LABEL LABEL... < LINES
   prints the best label of every line, and its share of the probability of all of them. */
#include "specdec.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABELS = 64, TYPED = 4095 /* bytes of a line that a terminal hands over, at most */ };

static int failed(const char *text)
{
    fprintf(stderr, "classify: %s\n", text);
    return 1;
}

/* Says what is wrong with a line. */
static int refused(int number, const char *text)
{
    fprintf(stderr, "classify: line %d: %s\n", number, text);
    return 1;
}

/* Writes what a line is. labels begin with a space, as words in a text do. */
static specdec_result classify(specdec *engine, const char *line, const char *const *labels, int count)
{
    double scores[LABELS], all = 0;
    int i, best = 0;
    specdec_result result = specdec_rewind(engine, 0);

    if (!result)
        result = specdec_prompt(engine, line, SPECDEC_WHOLE_STRING);
    if (!result)
        result = specdec_score(engine, labels, count, scores);
    for (i = 0; !result && i < count; i++)
        best = scores[i] > scores[best] ? i : best;
    for (i = 0; !result && i < count; i++)
        all += exp(scores[i] - scores[best]);
    if (!result)
        printf("%s\t%.1f%%\t%s\n", labels[best] + 1, 100 / all, line);
    return result;
}

int main(int argc, char **argv)
{
    static const char *labels[LABELS];
    specdec_config config = {0};
    specdec_error error;
    specdec *engine;
    size_t bytes, end;
    void *memory;
    char line[1 << 14];
    int i, number = 0, status = 0;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return printf("usage: classify MODEL.gguf LABEL LABEL... < LINES\n"
                      "Writes the label that goes best behind each line, its share, and the line.\n"), 0;
    if (argc < 4 || argc - 2 > LABELS)
        return fprintf(stderr, "usage: classify MODEL.gguf LABEL LABEL... < LINES\n"), 2;
    for (i = 0; i + 2 < argc; i++) {
        char *label = (char *)malloc(strlen(argv[i + 2]) + 2);

        if (!argv[i + 2][0] || !label)
            return failed(label ? "an empty label would always be the best one" : "no memory");
        sprintf(label, " %s", argv[i + 2]);
        labels[i] = label;
    }
    config.target.path = argv[1];
    config.batch = 4 * LABELS; /* tokens of all labels, at most */
    if (specdec_memory_needed(&config, &bytes, &error))
        return failed(error.text);
    memory = malloc(bytes);
    if (specdec_init(&engine, &config, memory, bytes, &error))
        return free(memory), failed(error.text);
    while (fgets(line, sizeof line, stdin)) {
        end = strcspn(line, "\n");
        number++;
        if (!line[end] && !feof(stdin))
            return refused(number, "a line is too long, or holds a zero byte");
        if (end == TYPED)
            refused(number, "it has 4095 bytes: if it was typed, the terminal may have cut its end");
        line[end - (end && line[end - 1] == '\r')] = 0;
        if (classify(engine, line, labels, argc - 2))
            status = refused(number, specdec_error_text(engine));
    }
    specdec_deinit(engine);
    free(memory);
    for (i = 0; i + 2 < argc; i++)
        free((void *)(uintptr_t)labels[i]);
    if (ferror(stdin))
        return failed("the lines cannot be read");
    return fflush(stdout) ? failed("the labels cannot be written") : status;
}
