#include "files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static char folder[] = "/tmp/dtrain-test-XXXXXX";

/* Without its files a test would mean nothing: it ends here, with a reason. */
static void give_up(const char *what, const char *name)
{
    fprintf(stderr, "cannot %s %s\n", what, name);
    exit(2);
}

void files_begin(void)
{
    if (mkdtemp(folder) == NULL)
        give_up("make", folder);
}

void files_end(void)
{
    DIR *directory = opendir(folder);
    if (directory == NULL)
        give_up("open", folder);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] != '.')
            files_remove(entry->d_name);
    }
    closedir(directory);
    rmdir(folder);
}

const char *files_folder(void)
{
    return folder;
}

const char *files_path(const char *name)
{
    static char paths[4][FILES_PATH_MAX];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, FILES_PATH_MAX, "%s/%s", folder, name);
    return path;
}

void files_remove(const char *name)
{
    remove(files_path(name));
}

void files_write(const char *name, const void *bytes, size_t length)
{
    FILE *file = fopen(files_path(name), "wb");
    if (file == NULL)
        give_up("write", name);
    size_t written = fwrite(bytes, 1, length, file);
    if (fclose(file) != 0 || written != length)
        give_up("write", name);
}

size_t files_idx(uint8_t *out, int ndim, const uint32_t *dims, const void *data, size_t length)
{
    uint8_t *next = out;
    *next++ = 0;
    *next++ = 0;
    *next++ = 8;
    *next++ = (uint8_t)ndim;
    for (int i = 0; i < ndim; i++) {
        for (int shift = 24; shift >= 0; shift -= 8)
            *next++ = (uint8_t)(dims[i] >> shift);
    }
    memcpy(next, data, length);
    return (size_t)(next - out) + length;
}

size_t files_gzip(uint8_t *out, size_t capacity, const void *bytes, size_t length)
{
    z_stream deflater;
    memset(&deflater, 0, sizeof deflater);
    if (deflateInit2(&deflater, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        give_up("compress", "data");
    uint8_t *input = malloc(length);
    if (input == NULL)
        give_up("compress", "data");
    memcpy(input, bytes, length);
    deflater.next_in = input;
    deflater.avail_in = (uInt)length;
    deflater.next_out = out;
    deflater.avail_out = (uInt)capacity;
    if (deflate(&deflater, Z_FINISH) != Z_STREAM_END)
        give_up("compress", "data");
    size_t written = capacity - deflater.avail_out;
    deflateEnd(&deflater);
    free(input);
    return written;
}
