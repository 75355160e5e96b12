#include "optim/state_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

dtrain_status_t dt_state_fail(const char *path, const char *what)
{
    return dt_fail(DTRAIN_ERR_FILE, "%s: %s: %s", path, what, strerror(errno));
}

static dtrain_status_t no_memory(const char *path)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for %s", path);
}

char *dt_state_shard_path(const char *path, uint64_t id, uint32_t shard, uint32_t num_shards)
{
    size_t cap = strlen(path) + 64;
    char *name = dt_alloc(cap);
    if (name)
        snprintf(name, cap, "%s.%016" PRIx64 ".%u-of-%u", path, id, shard, num_shards);
    return name;
}

/* ---- Reading --------------------------------------------------------------------------------- */

dtrain_status_t dt_state_read_at(int fd, const char *path, uint64_t offset, void *bytes,
                                 size_t length)
{
    char *to = bytes;
    while (length > 0) {
        ssize_t got = pread(fd, to, length, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dt_state_fail(path, "cannot be read");
        if (got == 0)
            return dt_fail(DTRAIN_ERR_FILE, "%s is cut off at byte %" PRIu64, path, offset);
        to += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return DTRAIN_OK;
}

int dt_state_open_file(const char *path, uint64_t *size)
{
    struct stat found;
    /* Without NONBLOCK a pipe of that name would block. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        dt_state_fail(path, "cannot be opened");
        return -1;
    }
    if (fstat(fd, &found) != 0)
        dt_state_fail(path, "cannot be read");
    else if (!S_ISREG(found.st_mode))
        dt_fail(DTRAIN_ERR_FILE, "%s is no file", path);
    else {
        *size = (uint64_t)found.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

static dtrain_status_t load(int fd, const char *path, uint64_t size, dt_state_header_t *header)
{
    uint8_t fixed[DT_STATE_FIXED] = {0};
    size_t start = size < sizeof fixed ? size : sizeof fixed;
    dtrain_status_t status = dt_state_read_at(fd, path, 0, fixed, start);
    if (status == DTRAIN_OK && start < sizeof fixed)
        status =
            dt_fail(DTRAIN_ERR_FILE, "%s is cut off: %zu bytes are no whole header", path, start);
    if (status == DTRAIN_OK)
        status = dt_state_get_head(path, fixed, size, &header->head);
    if (status != DTRAIN_OK)
        return status;
    size_t length = header->head.header_length;
    header->bytes = dt_alloc(length);
    if (!header->bytes)
        return no_memory(path);
    status = dt_state_read_at(fd, path, 0, header->bytes, length);
    /* What was decided by the first reading holds for the second. */
    if (status == DTRAIN_OK && memcmp(header->bytes, fixed, sizeof fixed) != 0)
        status = dt_fail(DTRAIN_ERR_FILE, "%s changed while it was read", path);
    if (status == DTRAIN_OK)
        status = dt_state_check_sum(path, header->bytes, &header->head, &header->sum);
    return status;
}

dtrain_status_t dt_state_load_header(const char *path, dt_state_header_t *header)
{
    uint64_t size;
    *header = (dt_state_header_t){0};
    int fd = dt_state_open_file(path, &size);
    if (fd < 0)
        return DTRAIN_ERR_FILE;
    dtrain_status_t status = load(fd, path, size, header);
    close(fd);
    if (status != DTRAIN_OK)
        dt_state_free_header(header);
    return status;
}

void dt_state_free_header(dt_state_header_t *header)
{
    dt_free(header->bytes);
    header->bytes = NULL;
}

dtrain_status_t dt_state_check_shard(const char *path, const dt_state_head_t *head,
                                     const dt_state_head_t *save, uint32_t shard)
{
    if (head->kind != DT_STATE_DATA || head->shard != shard || head->num_shards != save->num_shards)
        return dt_fail(DTRAIN_ERR_FILE, "%s is not shard %u of %u", path, shard, save->num_shards);
    if (head->step != save->step)
        return dt_fail(DTRAIN_ERR_FILE, "%s is of step %" PRId64 ", but the save of step %" PRId64,
                       path, head->step, save->step);
    if (head->id != save->id)
        return dt_fail(DTRAIN_ERR_FILE, "%s is of another save of the same step", path);
    return DTRAIN_OK;
}

/* ---- Writing --------------------------------------------------------------------------------- */

static dtrain_status_t write_all(int fd, const char *path, const dt_state_piece_t *piece)
{
    const char *from = piece->bytes;
    for (size_t left = piece->length; left > 0;) {
        ssize_t done = write(fd, from, left);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return dt_state_fail(path, "cannot be written");
        from += done;
        left -= (size_t)done;
    }
    return DTRAIN_OK;
}

static dtrain_status_t write_file(const char *path, const dt_state_piece_t *pieces,
                                  size_t num_pieces)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return dt_state_fail(path, "cannot be made");
    dtrain_status_t status = DTRAIN_OK;
    for (size_t i = 0; i < num_pieces && status == DTRAIN_OK; i++)
        status = write_all(fd, path, &pieces[i]);
    if (status == DTRAIN_OK && fsync(fd) != 0)
        status = dt_state_fail(path, "cannot be brought to the disk");
    if (close(fd) != 0 && status == DTRAIN_OK)
        status = dt_state_fail(path, "cannot be written");
    return status;
}

/* The name itself is on the disk when its folder is. */
static dtrain_status_t sync_folder(const char *path)
{
    char *folder = dt_strdup(path);
    if (!folder)
        return no_memory(path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    dtrain_status_t status = DTRAIN_OK;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: a file system that has nothing to bring there. */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        status = dt_state_fail(path, "its folder cannot be brought to the disk");
    if (fd >= 0)
        close(fd);
    dt_free(folder);
    return status;
}

dtrain_status_t dt_state_replace_file(const char *path, const dt_state_piece_t *pieces,
                                      size_t num_pieces)
{
    size_t cap = strlen(path) + 32;
    char *temporary = dt_alloc(cap);
    if (!temporary)
        return no_memory(path);
    snprintf(temporary, cap, "%s.tmp-%ld", path, (long)getpid());
    dtrain_status_t status = write_file(temporary, pieces, num_pieces);
    if (status == DTRAIN_OK && rename(temporary, path) != 0)
        status = dt_state_fail(path, "cannot be named");
    if (status == DTRAIN_OK)
        status = sync_folder(path);
    else
        unlink(temporary);
    dt_free(temporary);
    return status;
}
