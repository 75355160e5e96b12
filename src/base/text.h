/* text.h - texts of a bounded length, and the likeness of names. */
#ifndef DT_BASE_TEXT_H
#define DT_BASE_TEXT_H

#include <stdarg.h>
#include <stddef.h>

/*
 * Formats into text[cap], cap >= 8. What does not fit is cut between two UTF-8 characters and
 * ends in "...". Returns the length.
 */
size_t dt_text_vformat(char *text, size_t cap, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));
size_t dt_text_format(char *text, size_t cap, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How many characters have to be put in, taken out or replaced to turn one name into the other,
 * upper and lower case being equal. Only the first 63 bytes of each count. */
int dt_text_distance(const char *a, const char *b);

#endif
