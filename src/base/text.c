#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_COMPARED 63

/* Marks text[cap], which is full, as cut. The mark replaces whole characters, so that the text
 * stays valid UTF-8 for callers that decode it. */
static size_t mark_cut(char *text, size_t cap)
{
    size_t at = cap - 4;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    memcpy(text + at, "...", 4);
    return at + 3;
}

size_t dt_text_vformat(char *text, size_t cap, const char *format, va_list arguments)
{
    int length = vsnprintf(text, cap, format, arguments);
    if (length < 0) {
        text[0] = '\0';
        return 0;
    }
    if ((size_t)length >= cap)
        return mark_cut(text, cap);
    return (size_t)length;
}

size_t dt_text_format(char *text, size_t cap, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t length = dt_text_vformat(text, cap, format, arguments);
    va_end(arguments);
    return length;
}

static int least(int a, int b, int c)
{
    int ab = a < b ? a : b;
    return ab < c ? ab : c;
}

int dt_text_distance(const char *a, const char *b)
{
    int a_length = (int)strnlen(a, NAME_MAX_COMPARED);
    int b_length = (int)strnlen(b, NAME_MAX_COMPARED);
    /* row[j]: the distance of the first i characters of a from the first j of b. */
    int row[NAME_MAX_COMPARED + 1];
    for (int j = 0; j <= b_length; j++)
        row[j] = j;
    for (int i = 1; i <= a_length; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            int differs = tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]);
            int above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + differs);
            diagonal = above;
        }
    }
    return row[b_length];
}
