#include "idx.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define CHUNK_BYTES 65536
#define PIECE_BYTES (1 << 30)  /* what zlib's 32-bit counters are given at once */
#define DEFLATE_RATIO_MAX 1032 /* no deflate stream expands further */
#define IDX_UNSIGNED_BYTES 0x08

typedef struct reader {
    const char *path;
    FILE *file;
    int64_t file_size;
    int is_gzip;
    int at_end; /* gzip: the stream ended, and its checksum was right */
    z_stream inflater;
    uint8_t chunk[CHUNK_BYTES];
    mlp_error_t *error;
} reader_t;

static int reader_open(reader_t *reader)
{
    struct stat info;
    if (stat(reader->path, &info) != 0)
        return mlp_fail(reader->error, "%s: %s", reader->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return mlp_fail(reader->error, "%s: not a regular file", reader->path);
    reader->file_size = info.st_size;
    reader->file = fopen(reader->path, "rb");
    if (reader->file == NULL)
        return mlp_fail(reader->error, "%s: %s", reader->path, strerror(errno));

    int first = getc(reader->file);
    int second = getc(reader->file);
    reader->is_gzip = first == 0x1f && second == 0x8b;
    rewind(reader->file);
    if (reader->is_gzip && inflateInit2(&reader->inflater, 16 + MAX_WBITS) != Z_OK) {
        fclose(reader->file);
        return mlp_fail(reader->error, "%s: no memory to decompress it", reader->path);
    }
    return 0;
}

static void reader_close(reader_t *reader)
{
    if (reader->is_gzip)
        inflateEnd(&reader->inflater);
    fclose(reader->file);
}

/* The next bytes of the file as it lies on the disk; *got is 0 at its end. */
static int read_file(reader_t *reader, void *out, size_t length, size_t *got)
{
    *got = fread(out, 1, length, reader->file);
    if (*got < length && ferror(reader->file))
        return mlp_fail(reader->error, "%s: cannot be read: %s", reader->path, strerror(errno));
    return 0;
}

/* One call of inflate, on a full chunk if the last one is used up. */
static int inflate_more(reader_t *reader)
{
    z_stream *inflater = &reader->inflater;
    if (inflater->avail_in == 0) {
        size_t got;
        if (read_file(reader, reader->chunk, sizeof reader->chunk, &got) != 0)
            return -1;
        if (got == 0)
            return mlp_fail(reader->error, "%s: cut short: the gzip stream has no end",
                            reader->path);
        inflater->next_in = reader->chunk;
        inflater->avail_in = (uInt)got;
    }
    int status = inflate(inflater, Z_NO_FLUSH);
    if (status == Z_STREAM_END)
        reader->at_end = 1;
    else if (status != Z_OK && status != Z_BUF_ERROR)
        return mlp_fail(reader->error, "%s: the gzip data is damaged (%s)", reader->path,
                        inflater->msg != NULL ? inflater->msg : "unknown method");
    return 0;
}

/* The next bytes of the content; *got is less than `length` only where it ends. */
static int read_content(reader_t *reader, uint8_t *out, int64_t length, int64_t *got)
{
    int64_t done = 0;
    while (done < length && !reader->at_end) {
        size_t wanted = length - done < PIECE_BYTES ? (size_t)(length - done) : PIECE_BYTES;
        size_t read;
        if (!reader->is_gzip) {
            if (read_file(reader, out + done, wanted, &read) != 0)
                return -1;
            reader->at_end = read < wanted;
        } else {
            reader->inflater.next_out = out + done;
            reader->inflater.avail_out = (uInt)wanted;
            if (inflate_more(reader) != 0)
                return -1;
            read = wanted - reader->inflater.avail_out;
        }
        done += (int64_t)read;
    }
    *got = done;
    return 0;
}

static uint32_t big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
           (uint32_t)bytes[3];
}

/* Multiplies the extents, unless the file is too small for what they promise. */
static int check_size(const reader_t *reader, idx_t *idx)
{
    int64_t most = reader->file_size;
    if (reader->is_gzip && most <= INT64_MAX / DEFLATE_RATIO_MAX)
        most *= DEFLATE_RATIO_MAX;
    for (int i = 0; i < idx->ndim; i++) {
        if (idx->dims[i] == 0)
            return mlp_fail(reader->error, "%s: wrong dimensions: extent %d of %d is 0",
                            reader->path, i + 1, idx->ndim);
        if (idx->size > most / idx->dims[i])
            return mlp_fail(reader->error,
                            "%s: short, or wrong dimensions: the header promises more data than "
                            "%" PRId64 " bytes of file can hold",
                            reader->path, reader->file_size);
        idx->size *= idx->dims[i];
    }
    return 0;
}

static int read_header(reader_t *reader, idx_t *idx)
{
    uint8_t header[4 + 4 * IDX_NDIM_MAX];
    int64_t length = 4 + 4 * idx->ndim;
    int64_t got;
    if (read_content(reader, header, length, &got) != 0)
        return -1;
    if (got < 4)
        return mlp_fail(reader->error, "%s: too short for an IDX file: %" PRId64 " bytes",
                        reader->path, got);
    uint32_t expected = IDX_UNSIGNED_BYTES << 8 | (uint32_t)idx->ndim;
    if (big_endian(header) != expected)
        return mlp_fail(reader->error,
                        "%s: wrong magic number 0x%08x; an IDX file of bytes in %d dimension%s "
                        "begins with 0x%08x",
                        reader->path, (unsigned)big_endian(header), idx->ndim,
                        idx->ndim == 1 ? "" : "s", (unsigned)expected);
    if (got < length)
        return mlp_fail(reader->error,
                        "%s: short: the header ends after %" PRId64 " bytes of "
                        "%" PRId64,
                        reader->path, got, length);
    for (int i = 0; i < idx->ndim; i++)
        idx->dims[i] = big_endian(header + 4 + 4 * i);
    return check_size(reader, idx);
}

/* Reads idx->size bytes into idx->data and makes sure that the file ends with them. */
static int read_data(reader_t *reader, idx_t *idx)
{
    int64_t got;
    if (read_content(reader, idx->data, idx->size, &got) != 0)
        return -1;
    if (got < idx->size)
        return mlp_fail(reader->error,
                        "%s: short: the header promises %" PRId64 " bytes of data, the file has "
                        "%" PRId64,
                        reader->path, idx->size, got);
    uint8_t more;
    if (read_content(reader, &more, 1, &got) != 0)
        return -1;
    if (got != 0)
        return mlp_fail(reader->error,
                        "%s: trailing garbage: more than the %" PRId64 " bytes of data that the "
                        "header promises",
                        reader->path, idx->size);
    if (reader->is_gzip && (reader->inflater.avail_in > 0 || getc(reader->file) != EOF))
        return mlp_fail(reader->error, "%s: trailing garbage after the gzip stream", reader->path);
    return 0;
}

int idx_read(const char *path, int ndim, idx_t *out, mlp_error_t *error)
{
    idx_t idx = {.ndim = ndim, .size = 1};
    reader_t *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return mlp_fail(error, "%s: no memory to read it", path);
    reader->path = path;
    reader->error = error;
    if (reader_open(reader) != 0)
        goto err_free;
    if (read_header(reader, &idx) != 0)
        goto err_close;
    idx.data = malloc((size_t)idx.size);
    if (idx.data == NULL) {
        mlp_fail(error, "%s: no memory for its %" PRId64 " bytes", path, idx.size);
        goto err_close;
    }
    if (read_data(reader, &idx) != 0)
        goto err_data;
    reader_close(reader);
    free(reader);
    *out = idx;
    return 0;

err_data:
    free(idx.data);
err_close:
    reader_close(reader);
err_free:
    free(reader);
    return -1;
}

void idx_free(idx_t *idx)
{
    free(idx->data);
    idx->data = NULL;
}
