/* dump.h - what dump files say (src/observe/flight_lines.h describes their lines), put together. */
#ifndef DT_TOOLS_FLIGHT_DUMP_H
#define DT_TOOLS_FLIGHT_DUMP_H

#include <stddef.h>
#include <stdint.h>

#define FLIGHT_STAGES 4 /* submitted, agreed, started, finished */

typedef struct flight_op {
    int rank, file;
    uint64_t number; /* on its rank, from 1 */
    uint64_t place;  /* among what was agreed on in its set; 0: it was not */
    int set;
    char kind[24], name[64], dtype[16];
    int64_t count;
    int status;                      /* dtrain_status_t; 1 while it is unfinished */
    int64_t times_ns[FLIGHT_STAGES]; /* since 1970; 0: not yet */
} flight_op_t;

typedef struct flight_rank {
    int is_known; /* some file has it */
    int file;     /* the newest that does: operations of other files are dropped */
    char host[72];
    int pid;
    int64_t time_ns; /* when it was read */
    uint64_t counts[FLIGHT_STAGES];
} flight_rank_t;

typedef struct flight_set {
    int id, num_ranks;
    int *ranks;
} flight_set_t;

typedef struct flight_dump {
    int size;             /* of the world */
    int num_heads;        /* files that begin as a dump does */
    int num_cut;          /* files that do not end in their last line */
    int num_bad;          /* lines that could not be read */
    char reason[1100];    /* of the first file */
    int writer;           /* its rank */
    flight_rank_t *ranks; /* size */
    flight_op_t *ops;     /* by set, place, rank and number */
    size_t num_ops, ops_capacity;
    flight_set_t *sets;
    int num_sets;
} flight_dump_t;

/* Reads the files. 0, or -1 after a line on stderr. */
int flight_dump_read(flight_dump_t *dump, char *const *paths, int n);
void flight_dump_free(flight_dump_t *dump);

/* Whether a rank is in a process set. A set of which nothing is known is taken for the world. */
int flight_dump_is_member(const flight_dump_t *dump, int set, int rank);

/* ---- json.c: values of an object on one line ------------------------------------------------ */

/* 1 when the line is an object that has `key` at its first level; *value points to its value. */
int flight_json_find(const char *line, const char *key, const char **value);
int flight_json_integer(const char *line, const char *key, int64_t *value);
/* Decoded into text[cap], cut where it does not fit. */
int flight_json_text(const char *line, const char *key, char *text, size_t cap);
/* The next integer of an array; *at starts at the array's value. 0 at its end. */
int flight_json_next(const char **at, int64_t *value);

#endif
