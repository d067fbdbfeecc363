/* lanes.h - pictures of who ran what when, as SVG: a row of bars for each lane. */
#ifndef LANES_H
#define LANES_H
#include <stdio.h>

enum { LANES_LEFT = 120, LANES_WIDTH = 820 };

/* What a bar shows. */
enum { LANES_TARGET, LANES_DRAFT, LANES_CANCELLED };

/* Begins a picture so many pixels high. */
static inline void lanes_begin(FILE *f, int high)
{
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 %d\" font-family=\"sans-serif\" "
               "font-size=\"12\">\n<defs><pattern id=\"h\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
               "patternTransform=\"rotate(45)\"><rect width=\"2\" height=\"5\" fill=\"#b03030\"/></pattern></defs>\n"
               "<rect width=\"960\" height=\"%d\" fill=\"#fff\"/>\n", high, high);
}

/* The name of a lane whose bars begin at y and are so high. */
static inline void lanes_name(FILE *f, int y, int high, const char *mode, const char *name, int number)
{
    fprintf(f, "<text x=\"8\" y=\"%d\">%s%s%s", y + high - 3, mode, *mode ? ": " : "", name);
    if (number >= 0)
        fprintf(f, " %d", number);
    fprintf(f, "</text>\n");
}

/* A run of so many nodes (0: it is not said) from one time to another; those outside [begin, begin + span] are left
   out. */
static inline void lanes_bar(FILE *f, int y, int high, double begin, double span, double from, double to, int nodes,
                             int what)
{
    static const char *const fills[] = {"#3b6fb6", "#e0902f", "url(#h)"};
    const double x = LANES_LEFT + LANES_WIDTH * (from - begin) / span, width = LANES_WIDTH * (to - from) / span;

    if (from < begin || to > begin + span)
        return;
    fprintf(f, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\" stroke=\"#fff\" "
               "stroke-width=\".5\"/>\n", x, y, width, high, fills[what]);
    if (width > 16 && nodes)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" fill=\"%s\">%d</text>\n", x + 4, y + high - 3,
                what == LANES_CANCELLED ? "#000" : "#fff", nodes);
}

/* The line below, and the end. */
static inline void lanes_end(FILE *f, int y, double span)
{
    fprintf(f, "<text x=\"%d\" y=\"%d\">%.0f ms; numbers: nodes of a run; hatched: cancelled</text>\n</svg>\n",
            (int)LANES_LEFT, y, 1e3 * span);
}
#endif
