/* pset_text.c - the process sets of the setting process_sets: "0,1;2-5". */
#include "base/memory.h"
#include "base/status.h"
#include "core/pset.h"

/* A list of ranks in the making. */
typedef struct ranks {
    int *list; /* room for `max` */
    int count, max;
} ranks_t;

static dtrain_status_t fail(const char *text, const char *why)
{
    return dt_fail(DTRAIN_ERR_CONFIG, "DTRAIN_PROCESS_SETS (process_sets) is '%.200s': %s", text,
                   why);
}

/* Reads a number of at most 9 digits; -1 when there is none. */
static int read_rank(const char **at)
{
    int rank = -1;
    for (int digits = 0; **at >= '0' && **at <= '9' && digits < 9; digits++, (*at)++)
        rank = (rank < 0 ? 0 : 10 * rank) + (**at - '0');
    return rank;
}

static void skip_blanks(const char **at)
{
    while (**at == ' ')
        (*at)++;
}

/* Reads "3" or "2-5". */
static const char *read_run(const char **at, ranks_t *ranks)
{
    skip_blanks(at);
    int first = read_rank(at), last = first;
    if (**at == '-') {
        (*at)++;
        last = read_rank(at);
    }
    skip_blanks(at);
    if (first < 0 || last < first)
        return "expected ranks and runs of ranks, as '0,1;2-5'";
    if (last - first >= ranks->max - ranks->count)
        return "a process set has more ranks than the world";
    for (int rank = first; rank <= last; rank++)
        ranks->list[ranks->count++] = rank;
    return NULL;
}

/* Reads up to the next ';' and adds the set. */
static dtrain_status_t read_set(dt_psets_t *psets, const char *text, const char **at,
                                ranks_t *ranks)
{
    ranks->count = 0;
    for (;;) {
        const char *why = read_run(at, ranks);
        if (why)
            return fail(text, why);
        if (**at != ',')
            break;
        (*at)++;
    }
    if (**at != ';' && **at != '\0')
        return fail(text, "expected ranks and runs of ranks, as '0,1;2-5'");
    int32_t id;
    dtrain_status_t status = dt_psets_add(psets, ranks->list, ranks->count, &id);
    if (status == DTRAIN_ERR_INVALID_ARGUMENT || status == DTRAIN_ERR_UNSUPPORTED)
        return fail(text, dt_last_error());
    return status;
}

dtrain_status_t dt_psets_configure(dt_psets_t *psets, const char *text)
{
    if (text[0] == '\0')
        return DTRAIN_OK;
    ranks_t ranks = {.max = psets->world->topology.size};
    ranks.list = dt_alloc((size_t)ranks.max * sizeof *ranks.list);
    if (!ranks.list)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a process set");
    const char *at = text;
    dtrain_status_t status;
    do
        status = read_set(psets, text, &at, &ranks);
    while (status == DTRAIN_OK && *at++ == ';');
    dt_free(ranks.list);
    return status;
}
