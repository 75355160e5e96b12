#include "tools/flight/report.h"

#include <inttypes.h>
#include <string.h>

/* Of operations that wait, and of ranks, so many are listed for people. */
#define SHOWN_MAX 20

enum { SUBMITTED, AGREED, STARTED, FINISHED };

/* Writes "rank 3", "ranks 0-2, 5", or "no rank". */
static void put_ranks(FILE *out, const unsigned char *is_in, int size)
{
    int count = 0, put = 0;
    for (int rank = 0; rank < size; rank++)
        count += is_in[rank];
    fprintf(out, count == 0 ? "no rank" : count == 1 ? "rank " : "ranks ");
    for (int first = 0, last; first < size; first = last + 1) {
        last = first;
        if (!is_in[first])
            continue;
        while (last + 1 < size && is_in[last + 1])
            last++;
        fprintf(out, last > first ? "%s%d-%d" : "%s%d", put++ ? ", " : "", first, last);
    }
}

static void put_op(FILE *out, const flight_op_t *op)
{
    fprintf(out, "%s '%s'", op->kind, op->name);
    if (op->set != 0)
        fprintf(out, " of process set %d", op->set);
}

static void put_rank(FILE *out, const flight_dump_t *dump, int rank)
{
    fprintf(out, "rank %d", rank);
    if (dump->ranks[rank].is_known)
        fprintf(out, " on host %s (pid %d)", dump->ranks[rank].host, dump->ranks[rank].pid);
}

/* The operation of a rank that is its newest to have reached a stage; NULL: none. */
static const flight_op_t *newest(const flight_dump_t *dump, int rank, int stage)
{
    const flight_op_t *found = NULL;
    for (size_t i = 0; i < dump->num_ops; i++) {
        const flight_op_t *op = &dump->ops[i];
        if (op->rank == rank && op->times_ns[stage] != 0 &&
            (!found || op->times_ns[stage] > found->times_ns[stage] ||
             (op->times_ns[stage] == found->times_ns[stage] && op->number > found->number)))
            found = op;
    }
    return found;
}

static void put_table(FILE *out, const flight_dump_t *dump)
{
    fprintf(out, "  rank  submitted     agreed    started   finished  last finished\n");
    for (int rank = 0; rank < dump->size; rank++) {
        const flight_rank_t *known = &dump->ranks[rank];
        if (dump->size > SHOWN_MAX && rank >= SHOWN_MAX) {
            fprintf(out, "  … and %d more\n", dump->size - rank);
            return;
        }
        if (!known->is_known) {
            fprintf(out, "%6d  nothing is known of it\n", rank);
            continue;
        }
        fprintf(out, "%6d", rank);
        for (int stage = 0; stage < FLIGHT_STAGES; stage++)
            fprintf(out, " %10" PRIu64, known->counts[stage]);
        const flight_op_t *last = newest(dump, rank, FINISHED);
        fprintf(out, "  ");
        if (last) {
            put_op(out, last);
            fprintf(out, ", %.3g s before",
                    (double)(known->time_ns - last->times_ns[FINISHED]) / 1e9);
        } else {
            fprintf(out, "-");
        }
        fprintf(out, "\n");
    }
}

static void put_waits(FILE *out, const flight_dump_t *dump, const flight_verdict_t *verdict)
{
    for (size_t i = 0; i < verdict->num_waits; i++) {
        const flight_wait_t *wait = &verdict->waits[i];
        if (i == SHOWN_MAX) {
            fprintf(out, "  … and %zu more\n", verdict->num_waits - i);
            return;
        }
        fprintf(out, "  ");
        put_op(out, wait->op);
        fprintf(out, wait->is_agreed ? ": further: " : ": submitted by ");
        put_ranks(out, wait->is_there, dump->size);
        fprintf(out, wait->is_agreed ? "; behind: " : "; missing: ");
        put_ranks(out, wait->is_late, dump->size);
        fprintf(out, "\n");
    }
}

static void put_fork(FILE *out, const flight_dump_t *dump, const flight_fork_t *fork)
{
    fprintf(out, "First difference");
    if (fork->common) {
        fprintf(out, ", after ");
        put_op(out, fork->common);
        fprintf(out, " (number %" PRIu64 " that was agreed on)", fork->common->place);
    }
    fprintf(out, ":\n");
    for (int rank = 0; rank < dump->size && rank < SHOWN_MAX; rank++) {
        const flight_op_t *first = fork->first_after[rank];
        if (!dump->ranks[rank].is_known || !flight_dump_is_member(dump, fork->set, rank))
            continue;
        fprintf(out, "  rank %d: ", rank);
        if (first)
            put_op(out, first);
        else
            fprintf(out, "nothing");
        fprintf(out, "\n");
    }
}

/* Why: the first operation for which it is late. */
static void put_behind(FILE *out, const flight_dump_t *dump, const flight_verdict_t *verdict,
                       int rank)
{
    fprintf(out, "Behind: ");
    put_rank(out, dump, rank);
    for (size_t i = 0; i < verdict->num_waits; i++) {
        const flight_wait_t *wait = &verdict->waits[i];
        if (!wait->is_late[rank])
            continue;
        if (!dump->ranks[rank].is_known)
            fprintf(out, ": nothing is known of it, and others wait for it in ");
        else
            fprintf(out, wait->is_agreed ? ": has not come as far as the others in "
                                         : ": has not submitted ");
        put_op(out, wait->op);
        break;
    }
    fprintf(out, "\n");
}

void flight_report(FILE *out, const flight_dump_t *dump, const flight_verdict_t *verdict)
{
    int num_known = 0;
    for (int rank = 0; rank < dump->size; rank++)
        num_known += dump->ranks[rank].is_known;
    fprintf(out, "%d of %d ranks; written by rank %d: %s\n", num_known, dump->size, dump->writer,
            dump->reason);
    if (dump->num_cut > 0)
        fprintf(out, "%d file(s) end before their last line.\n", dump->num_cut);
    if (dump->num_bad > 0)
        fprintf(out, "%d line(s) could not be read.\n", dump->num_bad);
    put_table(out, dump);
    if (verdict->num_waits > 0)
        fprintf(out, "Unfinished:\n");
    put_waits(out, dump, verdict);
    if (verdict->has_fork)
        put_fork(out, dump, &verdict->fork);
    if (verdict->lost >= 0) {
        fprintf(out, "Lost: ");
        put_rank(out, dump, verdict->lost);
        fprintf(out, "\n");
    }
    for (int i = 0; i < verdict->num_behind && i < SHOWN_MAX; i++)
        put_behind(out, dump, verdict, verdict->behind[i]);
    if (verdict->num_behind == 0 && verdict->num_waits > 0)
        fprintf(out,
                "All ranks have come equally far: a rank is stopped, or the network is stuck.\n");
    if (verdict->num_waits == 0 && verdict->lost < 0)
        fprintf(out, "No operation is unfinished.\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fputc('\\', out);
        fputc((unsigned char)*c < ' ' ? '?' : *c, out);
    }
    fputc('"', out);
}

static void put_list(FILE *out, const unsigned char *is_in, int size)
{
    int put = 0;
    fputc('[', out);
    for (int rank = 0; rank < size; rank++) {
        if (is_in[rank])
            fprintf(out, "%s%d", put++ ? "," : "", rank);
    }
    fputc(']', out);
}

static void put_json_waits(FILE *out, const flight_dump_t *dump, const flight_verdict_t *verdict)
{
    for (size_t i = 0; i < verdict->num_waits; i++) {
        const flight_wait_t *wait = &verdict->waits[i];
        fprintf(out, "%s{\"kind\":", i > 0 ? "," : "");
        put_string(out, wait->op->kind);
        fprintf(out, ",\"name\":");
        put_string(out, wait->op->name);
        fprintf(out, ",\"set\":%d,\"agreed\":%s,\"there\":", wait->op->set,
                wait->is_agreed ? "true" : "false");
        put_list(out, wait->is_there, dump->size);
        fprintf(out, ",\"late\":");
        put_list(out, wait->is_late, dump->size);
        fprintf(out, "}");
    }
}

void flight_report_json(FILE *out, const flight_dump_t *dump, const flight_verdict_t *verdict)
{
    int put = 0;
    fprintf(out, "{\"size\":%d,\"reason\":", dump->size);
    put_string(out, dump->reason);
    fprintf(out, ",\"cut\":%s,\"ranks\":[", dump->num_cut > 0 ? "true" : "false");
    for (int rank = 0; rank < dump->size; rank++) {
        if (dump->ranks[rank].is_known)
            fprintf(out, "%s%d", put++ ? "," : "", rank);
    }
    fprintf(out, "],\"waiting\":[");
    put_json_waits(out, dump, verdict);
    fprintf(out, "],\"behind\":[");
    for (int i = 0; i < verdict->num_behind; i++)
        fprintf(out, "%s%d", i > 0 ? "," : "", verdict->behind[i]);
    fprintf(out, "],\"lost\":");
    if (verdict->lost >= 0)
        fprintf(out, "%d}\n", verdict->lost);
    else
        fprintf(out, "null}\n");
}
