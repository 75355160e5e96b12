/* state_disk.h - between writing and reading of state files: whole files and headers. */
#ifndef DT_OPTIM_STATE_DISK_H
#define DT_OPTIM_STATE_DISK_H

#include "optim/state_format.h"

/* A header that was read and checked. */
typedef struct dt_state_header {
    dt_state_head_t head;
    uint8_t *bytes; /* head.header_length */
    uint32_t sum;
} dt_state_header_t;

/* DTRAIN_ERR_FILE with the system's reason for `errno`. */
dtrain_status_t dt_state_fail(const char *path, const char *what);

/* The name of a shard's file, to be freed with dt_free; NULL when memory ran out. */
char *dt_state_shard_path(const char *path, uint64_t id, uint32_t shard, uint32_t num_shards);

/* Reads `length` bytes at `offset`; FILE when there are fewer. */
dtrain_status_t dt_state_read_at(int fd, const char *path, uint64_t offset, void *bytes,
                                 size_t length);

/* Opens a file for reading; -1, with FILE's text, when that fails. */
int dt_state_open_file(const char *path, uint64_t *size);

dtrain_status_t dt_state_load_header(const char *path, dt_state_header_t *header);
void dt_state_free_header(dt_state_header_t *header);

/* Whether `header`, read from `path`, is shard `shard` of the save that `save` names: FILE if not.
 */
dtrain_status_t dt_state_check_shard(const char *path, const dt_state_head_t *head,
                                     const dt_state_head_t *save, uint32_t shard);

/* Some bytes of a new file. */
typedef struct dt_state_piece {
    const void *bytes;
    size_t length;
} dt_state_piece_t;

/* Writes a file under a temporary name, and gives it its name when it is on the disk. */
dtrain_status_t dt_state_replace_file(const char *path, const dt_state_piece_t *pieces,
                                      size_t num_pieces);

#endif
