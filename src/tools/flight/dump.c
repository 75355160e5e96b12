#include "tools/flight/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define VERSION_KNOWN 1
#define SIZE_MAX_KNOWN (1 << 24) /* a world is no larger: a file that says so is damaged */

static int integer(const char *line, const char *key, int64_t low, int64_t high, int *value)
{
    int64_t wide;
    if (!flight_json_integer(line, key, &wide) || wide < low || wide > high)
        return 0;
    *value = (int)wide;
    return 1;
}

/* ---- Lines ----------------------------------------------------------------------------------- */

static int read_head(flight_dump_t *dump, const char *line)
{
    int version, size, writer;
    if (!integer(line, "version", 1, INT32_MAX, &version) ||
        !integer(line, "size", 1, SIZE_MAX_KNOWN, &size) ||
        !integer(line, "rank", 0, size - 1, &writer))
        return -1;
    if (version > VERSION_KNOWN) {
        fprintf(stderr, "dtrain-flight: a dump of version %d, which is newer than this program\n",
                version);
        return -2;
    }
    if (dump->size != 0 && dump->size != size) {
        fprintf(stderr, "dtrain-flight: dumps of a world of %d ranks and of one of %d\n",
                dump->size, size);
        return -2;
    }
    dump->num_heads++;
    if (dump->size != 0)
        return 0;
    dump->ranks = calloc((size_t)size, sizeof *dump->ranks);
    if (!dump->ranks)
        return -2;
    dump->size = size;
    dump->writer = writer;
    flight_json_text(line, "reason", dump->reason, sizeof dump->reason);
    return 0;
}

static const char *const stage_names[FLIGHT_STAGES] = {"submitted", "agreed", "started",
                                                       "finished"};

static int read_rank(flight_dump_t *dump, const char *line, int file)
{
    int rank, pid;
    int64_t time_ns, count;
    if (!integer(line, "rank", 0, dump->size - 1, &rank) ||
        !integer(line, "pid", 0, INT32_MAX, &pid) ||
        !flight_json_integer(line, "time_ns", &time_ns))
        return -1;
    flight_rank_t *known = &dump->ranks[rank];
    if (known->is_known && known->time_ns >= time_ns)
        return 0;
    *known = (flight_rank_t){.is_known = 1, .file = file, .pid = pid, .time_ns = time_ns};
    flight_json_text(line, "host", known->host, sizeof known->host);
    for (int stage = 0; stage < FLIGHT_STAGES; stage++) {
        if (flight_json_integer(line, stage_names[stage], &count) && count >= 0)
            known->counts[stage] = (uint64_t)count;
    }
    return 0;
}

static flight_op_t *new_op(flight_dump_t *dump)
{
    if (dump->num_ops == dump->ops_capacity) {
        size_t capacity = dump->ops_capacity ? 2 * dump->ops_capacity : 1024;
        flight_op_t *ops = realloc(dump->ops, capacity * sizeof *ops);
        if (!ops)
            return NULL;
        dump->ops = ops;
        dump->ops_capacity = capacity;
    }
    flight_op_t *op = &dump->ops[dump->num_ops++];
    memset(op, 0, sizeof *op);
    return op;
}

static int read_op(flight_dump_t *dump, const char *line, int file)
{
    flight_op_t op = {.file = file};
    int64_t number, place;
    if (!integer(line, "rank", 0, dump->size - 1, &op.rank) ||
        !flight_json_integer(line, "number", &number) ||
        !flight_json_integer(line, "place", &place) ||
        !integer(line, "set", 0, INT32_MAX, &op.set) ||
        !integer(line, "status", INT32_MIN, INT32_MAX, &op.status) ||
        !flight_json_text(line, "name", op.name, sizeof op.name) ||
        !flight_json_text(line, "kind", op.kind, sizeof op.kind))
        return -1;
    op.number = (uint64_t)number;
    op.place = (uint64_t)place;
    flight_json_text(line, "dtype", op.dtype, sizeof op.dtype);
    flight_json_integer(line, "count", &op.count);
    for (int stage = 0; stage < FLIGHT_STAGES; stage++) {
        char key[24];
        snprintf(key, sizeof key, "%s_ns", stage_names[stage]);
        flight_json_integer(line, key, &op.times_ns[stage]);
    }
    flight_op_t *kept = new_op(dump);
    if (!kept)
        return -2;
    *kept = op;
    return 0;
}

static int read_set(flight_dump_t *dump, const char *line)
{
    int id;
    int64_t rank;
    const char *at;
    if (!integer(line, "set", 1, INT32_MAX, &id) || !flight_json_find(line, "ranks", &at))
        return -1;
    for (int i = 0; i < dump->num_sets; i++) {
        if (dump->sets[i].id == id)
            return 0;
    }
    flight_set_t *sets = realloc(dump->sets, ((size_t)dump->num_sets + 1) * sizeof *sets);
    if (!sets)
        return -2;
    dump->sets = sets;
    flight_set_t *set = &sets[dump->num_sets];
    *set = (flight_set_t){.id = id, .ranks = calloc((size_t)dump->size, sizeof *set->ranks)};
    if (!set->ranks)
        return -2;
    dump->num_sets++;
    while (set->num_ranks < dump->size && flight_json_next(&at, &rank)) {
        if (rank >= 0 && rank < dump->size)
            set->ranks[set->num_ranks++] = (int)rank;
    }
    return 0;
}

/* 0; -1: it is no line of a dump; -2: reading cannot go on, and stderr says why, or memory ran out.
 * *is_end: it was the last line. */
static int read_line(flight_dump_t *dump, const char *line, int file, int *is_end)
{
    char type[16];
    *is_end = 0;
    if (!flight_json_text(line, "type", type, sizeof type))
        return -1;
    if (strcmp(type, "dump") == 0)
        return read_head(dump, line);
    if (dump->size == 0)
        return -1;
    if (strcmp(type, "rank") == 0)
        return read_rank(dump, line, file);
    if (strcmp(type, "op") == 0)
        return read_op(dump, line, file);
    if (strcmp(type, "set") == 0)
        return read_set(dump, line);
    *is_end = strcmp(type, "end") == 0;
    return 0; /* what a later version adds is no fault */
}

/* ---- Files ----------------------------------------------------------------------------------- */

static int read_file(flight_dump_t *dump, const char *path, int file)
{
    char *line = NULL;
    size_t capacity = 0;
    int is_end = 0, status = 0;
    int num_heads = dump->num_heads;
    FILE *in = fopen(path, "re");
    if (!in) {
        fprintf(stderr, "dtrain-flight: %s: %s\n", path, strerror(errno));
        return -1;
    }
    ssize_t length;
    while (status != -2 && (length = getline(&line, &capacity, in)) > 0) {
        int is_whole = line[length - 1] == '\n'; /* else it was cut */
        status = is_whole ? read_line(dump, line, file, &is_end) : 0;
        dump->num_bad += status == -1;
    }
    free(line);
    fclose(in);
    if (status == -2)
        return -1;
    if (dump->num_heads == num_heads) {
        fprintf(stderr, "dtrain-flight: %s: this is no dump of libdtrain\n", path);
        return -1;
    }
    dump->num_cut += !is_end;
    return 0;
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int by_place(const void *a, const void *b)
{
    const flight_op_t *x = a, *y = b;
    int order = (x->set > y->set) - (x->set < y->set);
    if (order == 0)
        order = compare(x->place, y->place);
    if (order == 0)
        order = (x->rank > y->rank) - (x->rank < y->rank);
    return order != 0 ? order : compare(x->number, y->number);
}

/* Of a rank that is in several files the newest counts. */
static void drop_old(flight_dump_t *dump)
{
    size_t kept = 0;
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_rank_t *rank = &dump->ranks[dump->ops[i].rank];
        if (rank->is_known && rank->file == dump->ops[i].file)
            dump->ops[kept++] = dump->ops[i];
    }
    dump->num_ops = kept;
}

int flight_dump_read(flight_dump_t *dump, char *const *paths, int n)
{
    memset(dump, 0, sizeof *dump);
    for (int i = 0; i < n; i++) {
        if (read_file(dump, paths[i], i) != 0)
            return -1;
    }
    drop_old(dump);
    if (dump->num_ops > 0)
        qsort(dump->ops, dump->num_ops, sizeof *dump->ops, by_place);
    return 0;
}

void flight_dump_free(flight_dump_t *dump)
{
    for (int i = 0; i < dump->num_sets; i++)
        free(dump->sets[i].ranks);
    free(dump->sets);
    free(dump->ops);
    free(dump->ranks);
}

int flight_dump_is_member(const flight_dump_t *dump, int set, int rank)
{
    for (int i = 0; i < dump->num_sets; i++) {
        if (dump->sets[i].id != set)
            continue;
        for (int member = 0; member < dump->sets[i].num_ranks; member++) {
            if (dump->sets[i].ranks[member] == rank)
                return 1;
        }
        return 0;
    }
    return 1;
}
