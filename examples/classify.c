/* classify - which of some labels goes best behind a text? All labels are tried in one step, as the branches of a tree.

   classify MODEL.gguf LABEL LABEL... < LINES
   prints the best label of every line, and its share of the probability of all of them. */
#include "specdec.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NODES = 64, TYPED = 4095 /* bytes of a line that a terminal hands over, at most */ };

/* The labels as a tree: label i is the nodes [from[i], from[i + 1]), a chain behind the text. */
static int32_t tokens[MOST_NODES], parents[MOST_NODES];
static int from[MOST_NODES + 1];

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

/* Appends a label to the tree. */
static specdec_result add_label(const specdec_model *model, int i, const char *label, specdec_error *error)
{
    static char memory[1 << 14];
    int count, at;
    specdec_result result = specdec_tokenize(model, label, SPECDEC_WHOLE_STRING, 0, tokens + from[i], MOST_NODES - from[i], &count,
                                             memory, sizeof memory, error);

    for (at = 0; !result && at < count; at++)
        parents[from[i] + at] = at ? from[i] + at - 1 : -1;
    from[i + 1] = from[i] + count;
    return result;
}

/* The log-probability of a token by a row of logits. */
static double log_probability(const float *row, int vocabulary, int32_t token)
{
    double best = row[token], total = 0;
    int i;

    for (i = 0; i < vocabulary; i++)
        best = row[i] > best ? row[i] : best;
    for (i = 0; i < vocabulary; i++)
        total += exp(row[i] - best);
    return row[token] - best - log(total);
}

/* Writes what a line is: rows has room for a row of logits behind the text and behind every node. */
static specdec_result classify(specdec *engine, const char *line, char **labels, int count, float *rows, int vocabulary)
{
    double score[MOST_NODES], all = 0;
    int i, node, best = 0;
    specdec_result result = specdec_rewind(engine, 0);

    if (!result)
        result = specdec_prompt(engine, line, SPECDEC_WHOLE_STRING);
    if (!result)
        result = specdec_logits(engine, tokens, parents, from[count], rows);
    for (i = 0; !result && i < count; i++) {
        for (score[i] = 0, node = from[i]; node < from[i + 1]; node++)
            score[i] += log_probability(rows + (size_t)(parents[node] + 1) * (size_t)vocabulary, vocabulary, tokens[node]);
        best = score[i] > score[best] ? i : best;
    }
    for (i = 0; !result && i < count; i++)
        all += exp(score[i] - score[best]);
    if (!result)
        printf("%s\t%.1f%%\t%s\n", labels[best], 100 / all, line);
    return result;
}

int main(int argc, char **argv)
{
    specdec_config config = {0};
    specdec_error error;
    specdec_info info;
    specdec *engine;
    size_t bytes, end;
    void *memory;
    float *rows;
    char line[1 << 14];
    int i, number = 0, status = 0;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return printf("usage: classify MODEL.gguf LABEL LABEL... < LINES\n"
                      "Writes the label that goes best behind each line, its share, and the line.\n"), 0;
    if (argc < 4 || argc - 2 > MOST_NODES)
        return fprintf(stderr, "usage: classify MODEL.gguf LABEL LABEL... < LINES\n"), 2;
    config.target.path = argv[1];
    config.batch = MOST_NODES; /* nodes of a step */
    if (specdec_memory_needed(&config, &bytes, &error))
        return failed(error.text);
    memory = malloc(bytes);
    if (specdec_init(&engine, &config, memory, bytes, &error))
        return free(memory), failed(error.text);
    for (i = 0; i + 2 < argc; i++)
        if (!argv[i + 2][0])
            return failed("an empty label would always be the best one");
        else if (specdec_tokenize_memory(specdec_get_model(engine), strlen(argv[i + 2])) > 1 << 14 ||
            add_label(specdec_get_model(engine), i, argv[i + 2], &error))
            return failed("the labels are too long, or too many");
    specdec_get_info(engine, &info);
    rows = (float *)malloc((MOST_NODES + 1) * (size_t)info.vocabulary * sizeof *rows);
    while (rows && fgets(line, sizeof line, stdin)) {
        end = strcspn(line, "\n");
        number++;
        if (!line[end] && !feof(stdin))
            return refused(number, "a line is too long, or holds a zero byte");
        if (end == TYPED)
            refused(number, "it has 4095 bytes: if it was typed, the terminal may have cut its end");
        line[end - (end && line[end - 1] == '\r')] = 0;
        if (classify(engine, line, argv + 2, argc - 2, rows, info.vocabulary))
            status = refused(number, specdec_error_text(engine));
    }
    free(rows);
    specdec_deinit(engine);
    free(memory);
    if (ferror(stdin))
        return failed("the lines cannot be read");
    return !rows ? failed("no memory") : fflush(stdout) ? failed("the labels cannot be written") : status;
}
