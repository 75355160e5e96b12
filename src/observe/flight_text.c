#include "observe/flight_text.h"

#include "base/clock.h"
#include "base/text.h"

/* Enough for an operation in words. */
#define WHAT_MAX 160

static dt_flight_stage_t stage_of(const dt_flight_record_t *record)
{
    int stage = DT_FLIGHT_FINISHED;
    while (stage > DT_FLIGHT_SUBMITTED && record->times_ns[stage] == 0)
        stage--;
    return (dt_flight_stage_t)stage;
}

int dt_flight_find_unfinished(const dt_flight_board_t *board, dt_flight_record_t *record,
                              int *num_unfinished)
{
    int found = 0;
    dt_flight_record_t other;
    *num_unfinished = 0;
    for (int i = 0; i < DT_FLIGHT_RECORDS; i++) {
        if (!dt_flight_read_slot(board, i, &other) || stage_of(&other) == DT_FLIGHT_FINISHED)
            continue;
        ++*num_unfinished;
        int is_further = !found || stage_of(&other) > stage_of(record) ||
                         (stage_of(&other) == stage_of(record) && other.number < record->number);
        if (is_further)
            *record = other;
        found = 1;
    }
    return found;
}

/* Names come from programs, and here perhaps from another process's memory. */
static void make_printable(char *name)
{
    for (char *c = name; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    }
}

/* "allreduce 'w'", and its process set where that is not the world. */
static const char *describe(const dt_flight_record_t *record, dt_flight_kind_fn_t kind_name,
                            char what[WHAT_MAX])
{
    dt_flight_record_t copy = *record;
    size_t length;
    make_printable(copy.name);
    length = dt_text_format(what, WHAT_MAX, "%s '%s'", kind_name(copy.kind), copy.name);
    if (copy.set != DTRAIN_PSET_WORLD)
        dt_text_format(what + length, WHAT_MAX - length, " of process set %d", (int)copy.set);
    return what;
}

/* Never negative: another process may have written later than the caller looked at the clock. */
static double age_s(int64_t then_ns, int64_t now_ns)
{
    return then_ns < now_ns ? (double)(now_ns - then_ns) / (double)DT_NS_PER_S : 0;
}

size_t dt_flight_describe_last(const dt_flight_board_t *board, int64_t now_ns,
                               dt_flight_kind_fn_t kind_name, char *text, size_t cap)
{
    static const char *const doing[] = {"waiting for other ranks in", "about to start", "in",
                                        "behind"};
    dt_flight_record_t record;
    dt_flight_position_t position;
    char what[WHAT_MAX];
    int num_unfinished;
    size_t length = 0;
    dt_flight_read_position(board, &position);
    const dt_flight_record_t *finished = &position.last[DT_FLIGHT_FINISHED];
    text[0] = '\0';
    if (dt_flight_find_unfinished(board, &record, &num_unfinished))
        length = dt_text_format(text, cap, "%s %s (its operation %llu; %d unfinished)",
                                doing[stage_of(&record)], describe(&record, kind_name, what),
                                (unsigned long long)record.number, num_unfinished);
    else if (finished->number != 0)
        length = dt_text_format(text, cap, "outside of all operations");
    if (finished->number != 0 && cap - length > 8)
        length += dt_text_format(text + length, cap - length, ", and had finished %s %.3g s ago",
                                 describe(finished, kind_name, what),
                                 age_s(position.times_ns[DT_FLIGHT_FINISHED], now_ns));
    return length;
}

static size_t describe_stage(const dt_flight_position_t *position, int stage, int64_t now_ns,
                             dt_flight_kind_fn_t kind_name, char *text, size_t cap)
{
    char what[WHAT_MAX];
    const char *name = dt_flight_stage_name((dt_flight_stage_t)stage);
    const char *comma = stage == 0 ? "" : ", ";
    if (position->counts[stage] == 0)
        return dt_text_format(text, cap, "%s%s nothing", comma, name);
    const dt_flight_record_t *last = &position->last[stage];
    return dt_text_format(text, cap, "%s%s %s %.3g s ago", comma, name,
                          last->number != 0 ? describe(last, kind_name, what) : "something",
                          age_s(position->times_ns[stage], now_ns));
}

size_t dt_flight_describe_position(const dt_flight_position_t *position, int64_t now_ns,
                                   dt_flight_kind_fn_t kind_name, char *text, size_t cap)
{
    size_t length = 0;
    if (position->counts[DT_FLIGHT_SUBMITTED] == 0)
        return dt_text_format(text, cap, "has submitted nothing yet");
    length = dt_text_format(text, cap, "last ");
    for (int stage = 0; stage < DT_FLIGHT_STAGES && cap - length > 8; stage++)
        length += describe_stage(position, stage, now_ns, kind_name, text + length, cap - length);
    uint64_t left = position->counts[DT_FLIGHT_SUBMITTED] - position->counts[DT_FLIGHT_FINISHED];
    if (cap - length > 8)
        length += dt_text_format(text + length, cap - length, "; %llu unfinished",
                                 (unsigned long long)left);
    return length;
}
