/*
 * random_program.h - random programs: what each of a few ranks submits, in rounds, drawn from a
 * seed; and, by a model that knows neither threads nor messages, what must come of it.
 *
 * A program holds operations of all kinds on the world and on process sets that come and go, alone
 * and in groups, while ranks join and come back. In some of them one rank makes a slip: another
 * type, another root, an argument that is refused, no call at all.
 */
#ifndef DT_TEST_RANDOM_PROGRAM_H
#define DT_TEST_RANDOM_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "core/signature.h"

#define PROGRAM_RANKS_MAX 5
#define PROGRAM_ROUNDS_MAX 7
#define PROGRAM_ACTIONS_MAX 14
#define PROGRAM_SETS_MAX 4 /* with the world */
#define PROGRAM_SPARSE_ROWS 12
#define PROGRAM_SPARSE_ROW_MAX 200

/* What one rank does otherwise than the others. */
typedef enum slip {
    SLIP_NONE,
    SLIP_DTYPE,
    SLIP_SHAPE,
    SLIP_OP,
    SLIP_ROOT,
    SLIP_SCALE,
    SLIP_KIND,
    SLIP_CODEC,
    SLIP_REFUSED, /* its call cannot be */
    SLIP_ABSENT,  /* it makes no call */
    SLIP_ROOM     /* its output has no room */
} slip_t;

/* One operation. Ranks are numbers of the world, as bits where there are several. */
typedef struct action {
    dt_kind_t kind;
    char name[24];
    int set;                        /* index in the program's sets */
    int members[PROGRAM_RANKS_MAX]; /* of the set, in its order */
    int num_members;
    unsigned active; /* members that have not joined the set: they submit */
    dtrain_dtype_t dtype;
    dtrain_op_t op;
    double prescale, postscale;
    int root, peer;
    int64_t rows[PROGRAM_RANKS_MAX]; /* first extent, or rows of a sparse tensor, by rank */
    int64_t row;                     /* the other extent */
    int64_t splits[PROGRAM_RANKS_MAX][PROGRAM_RANKS_MAX]; /* an alltoall's: from, to */
    const char *codec;                                    /* a name, or NULL */
    int priority;
    int has_callback, in_place, has_room; /* has_room: `out` is the caller's where it may be NULL */
    int group;                            /* the first action of its group; -1: alone */
    slip_t slip;
    int slip_rank;
    uint64_t salt; /* of its values */
} action_t;

typedef enum round_kind { ROUND_OPERATIONS, ROUND_ADD, ROUND_REMOVE } round_kind_t;

/* Ends when all that was submitted in it is done, but for joins. */
typedef struct round {
    round_kind_t kind;
    int set;                            /* ADD, REMOVE: which */
    int has_slip;                       /* the last rank disagrees: nothing comes of it */
    unsigned joining[PROGRAM_SETS_MAX]; /* ranks that join behind the operations */
    int completes[PROGRAM_SETS_MAX];    /* they are the last ones */
    int num_actions;
    action_t actions[PROGRAM_ACTIONS_MAX];
} round_t;

typedef struct program {
    uint64_t seed;
    int size;
    int64_t fusion_threshold;
    int join_divisor; /* dtrain_join_divisor_t */
    int num_rounds;
    round_t rounds[PROGRAM_ROUNDS_MAX];
    /* By index; a set that comes again has another id. */
    int members[PROGRAM_SETS_MAX][PROGRAM_RANKS_MAX];
    int num_members[PROGRAM_SETS_MAX];
} program_t;

/* Numbers below `n` drawn from a seed. */
uint64_t random_below(uint64_t *seed, uint64_t n);

/* What programs are drawn for. */
typedef struct program_limits {
    int size;       /* ranks; 0: drawn too */
    int64_t longer; /* the length of a row that is not one of a few elements */
    int all_types;  /* int8 and uint16, too */
} program_limits_t;

void program_make(program_t *program, uint64_t seed, const program_limits_t *limits);

/* ---- A rank's part: random_part.c ------------------------------------------------------------ */

/* The order in which a rank goes through a round's actions: any, but for barriers, which are
 * matched by their order. */
void part_draw_order(const round_t *round, uint64_t *seed, int *order);

/* What the rank that slips says in place of the action. SLIP_REFUSED, SLIP_ABSENT and SLIP_ROOM
 * change nothing here. */
void part_slip(action_t *action);

/* Whether the library may provide the output; whether it may be the input. */
int part_may_be_provided(const action_t *action);
int part_may_be_in_place(const action_t *action);

/* Bytes for the longest input or output that an action has on any rank, and a row of one more. */
size_t part_room(const action_t *action);

/* Whether some rank does not submit what the others do. */
int part_has_absent(const round_t *round);

/* Ranks that may be told as the last to join a set, as bits. */
unsigned part_may_be_last(const program_t *program, const round_t *round, int set);

/* ---- The model ------------------------------------------------------------------------------- */

/* Whether a rank submits the action at all. */
int model_submits(const action_t *action, int rank);

/* What comes of action `i` of a round on a rank that submits it. *now: the call itself returns it.
 */
dtrain_status_t model_status(const program_t *program, const round_t *round, int i, int rank,
                             int *now);

/* Element i of a rank's input, exactly representable in the action's type. */
double model_input(const action_t *action, int rank, int64_t i);

/* Index of a rank's i-th row of a sparse tensor. */
int64_t model_index(const action_t *action, int rank, int64_t i);

/* The output on a rank: its elements in out[], as double; rounded to the type. Returns how many;
 * -1: the rank has none. *rows receives its first extent. A sparse one is the whole tensor. */
int64_t model_output(const program_t *program, const action_t *action, int rank, double *out,
                     int64_t *rows);

#endif
