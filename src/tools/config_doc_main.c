/*
 * dtrain-config-doc - writes docs/config.md to standard output; with a file's name, compares the
 * file with it instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"

static char *generate(size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    if (!out)
        return NULL;
    dt_config_write_markdown(out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* 1 when the file holds just this text. */
static int is_same(FILE *file, const char *text, size_t length)
{
    char *content = malloc(length + 1); /* one more than expected, to see that it ends */
    if (!content)
        return 0;
    size_t got = fread(content, 1, length + 1, file);
    int same = got == length && memcmp(content, text, length) == 0;
    free(content);
    return same;
}

static int compare(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    int same = is_same(file, text, length);
    fclose(file);
    if (!same)
        fprintf(stderr, "%s is not what the table of settings says: run dtrain-config-doc > %s\n",
                path, path);
    return !same;
}

int main(int argc, char **argv)
{
    size_t length = 0;
    char *text = generate(&length);
    if (!text) {
        fprintf(stderr, "dtrain-config-doc: out of memory\n");
        return 1;
    }
    int failed;
    if (argc > 1)
        failed = compare(argv[1], text, length);
    else
        failed = fwrite(text, 1, length, stdout) != length || fflush(stdout) != 0;
    free(text);
    return failed;
}
