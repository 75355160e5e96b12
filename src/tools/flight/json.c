/* json.c - as much of JSON as lines of dumps need: an object whose values are integers, strings,
 * null or arrays of integers. Whatever else comes is not found. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tools/flight/dump.h"

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* Behind a string that begins at `at`; NULL when it does not end. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\')
            at++;
        if (*at == '\0')
            return NULL;
    }
    return at + 1;
}

/* Behind a value; NULL when it does not end. */
static const char *skip_value(const char *at)
{
    int depth = 0;
    if (*at == '"')
        return skip_string(at);
    for (; *at; at++) {
        if (depth == 0 && (*at == ',' || *at == '}'))
            return at;
        depth += *at == '[' ? 1 : *at == ']' ? -1 : 0;
        if (depth < 0)
            return NULL;
    }
    return NULL;
}

int flight_json_find(const char *line, const char *key, const char **value)
{
    size_t length = strlen(key);
    const char *at = skip_space(line);
    if (*at != '{')
        return 0;
    do {
        at = skip_space(at + 1);
        const char *name = at;
        if (*at != '"' || !(at = skip_string(at)))
            return 0;
        size_t name_length = (size_t)(at - name) - 2;
        at = skip_space(at);
        if (*at != ':')
            return 0;
        at = skip_space(at + 1);
        if (name_length == length && memcmp(name + 1, key, length) == 0) {
            *value = at;
            return skip_value(at) != NULL;
        }
        at = skip_value(at);
    } while (at && *skip_space(at) == ',');
    return 0;
}

int flight_json_integer(const char *line, const char *key, int64_t *value)
{
    const char *at;
    char *end;
    if (!flight_json_find(line, key, &at) || (*at != '-' && !isdigit((unsigned char)*at)))
        return 0;
    *value = strtoll(at, &end, 10);
    return end != at;
}

/* One character, escaped or not, into `piece`; returns what comes behind it. */
static const char *take_character(const char *at, char piece[8])
{
    piece[0] = *at;
    piece[1] = '\0';
    if (*at != '\\')
        return at + 1;
    at++;
    if (*at == 'u') { /* only control characters are written so */
        piece[0] = '?';
        for (int i = 0; i < 4 && isxdigit((unsigned char)at[1]); i++)
            at++;
        return at + 1;
    }
    piece[0] = *at == 'n' || *at == 't' || *at == 'r' || *at == 'b' || *at == 'f' ? '?' : *at;
    return at + 1;
}

int flight_json_text(const char *line, const char *key, char *text, size_t cap)
{
    const char *at;
    size_t length = 0;
    if (!flight_json_find(line, key, &at) || *at != '"')
        return 0;
    for (at++; *at != '"';) {
        char piece[8];
        at = take_character(at, piece);
        if (length + strlen(piece) < cap) {
            memcpy(text + length, piece, strlen(piece));
            length += strlen(piece);
        }
    }
    text[length] = '\0';
    return 1;
}

int flight_json_next(const char **at, int64_t *value)
{
    char *end;
    const char *from = *at;
    while (*from == '[' || *from == ',' || *from == ' ')
        from++;
    *value = strtoll(from, &end, 10);
    *at = end;
    return end != from;
}
