#include "observe/flight.h"

#include <stdlib.h>
#include <string.h>

/*
 * A slot's words. The name is what is left, eight bytes a word. All stores are releases and all
 * loads acquires, which cost nothing on x86 and make the rule hold that the first word guards the
 * others.
 */
enum {
    NUMBER = 0,
    TIMES = 1, /* one a stage */
    COUNT = TIMES + DT_FLIGHT_STAGES,
    PLACE,
    SET_STATUS, /* set, status << 32 */
    KINDS,      /* kind, dtype << 8 */
    NAME
};

#define NAME_WORDS (DT_FLIGHT_WORDS - NAME)
#define SLOT_BITS 10

_Static_assert(DT_FLIGHT_RECORDS == 1 << SLOT_BITS, "a reference has room for every slot");
_Static_assert(NAME_WORDS * 8 == DT_FLIGHT_NAME_MAX, "the name is what is left");
_Static_assert(sizeof(dt_flight_slot_t) == 2 * 64, "a slot is two cache lines");

static void put(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

const char *dt_flight_stage_name(dt_flight_stage_t stage)
{
    static const char *const names[] = {"submitted", "agreed", "started", "finished"};
    return stage >= 0 && stage < DT_FLIGHT_STAGES ? names[stage] : "";
}

void dt_flight_init(dt_flight_t *flight, dt_flight_board_t *board)
{
    *flight = (dt_flight_t){.board = board};
}

/* ---- Writing ------------------------------------------------------------------------------ */

static uint64_t number_of(dt_flight_ref_t ref)
{
    return ref >> SLOT_BITS;
}

/* The slot of a record; NULL when another one has taken its place. */
static dt_flight_slot_t *slot_of(dt_flight_board_t *board, dt_flight_ref_t ref)
{
    dt_flight_slot_t *slot = &board->slots[ref & (DT_FLIGHT_RECORDS - 1)];
    return ref != 0 && get(&slot->words[NUMBER]) == number_of(ref) ? slot : NULL;
}

static void set_mark(dt_flight_t *flight, dt_flight_ref_t ref, dt_flight_stage_t stage)
{
    dt_flight_mark_t *mark = &flight->board->marks[stage];
    put(&mark->count, atomic_load_explicit(&mark->count, memory_order_relaxed) + 1);
    put(&mark->last, ref);
    atomic_store_explicit(&mark->time_ns, flight->now_ns, memory_order_release);
}

/* An operation has reached a stage; `slot` is NULL when its record is gone. */
static void reach(dt_flight_t *flight, dt_flight_slot_t *slot, dt_flight_ref_t ref,
                  dt_flight_stage_t stage)
{
    if (slot)
        put(&slot->words[TIMES + stage], (uint64_t)flight->now_ns);
    set_mark(flight, ref, stage);
}

static int is_finished(const dt_flight_slot_t *slot)
{
    return get(&slot->words[NUMBER]) == 0 || get(&slot->words[TIMES + DT_FLIGHT_FINISHED]) != 0;
}

static uint32_t find_slot(dt_flight_t *flight)
{
    uint32_t first = flight->next_slot;
    uint32_t slot = first;
    while (!is_finished(&flight->board->slots[slot])) {
        slot = (slot + 1) & (DT_FLIGHT_RECORDS - 1);
        if (slot == first)
            break;
    }
    flight->next_slot = (slot + 1) & (DT_FLIGHT_RECORDS - 1);
    return slot;
}

/* Writes "..." and as many whole characters of the end as there is room for. */
static size_t cut_name(const char *name, size_t length, char cut[DT_FLIGHT_NAME_MAX])
{
    size_t from = length - (DT_FLIGHT_NAME_MAX - 1) + 3;
    while (from < length && ((unsigned char)name[from] & 0xC0) == 0x80)
        from++;
    cut[0] = cut[1] = cut[2] = '.';
    memcpy(cut + 3, name + from, length - from);
    return 3 + length - from;
}

static void put_name(dt_flight_slot_t *slot, const char *name, size_t length)
{
    char cut[DT_FLIGHT_NAME_MAX];
    if (length >= DT_FLIGHT_NAME_MAX) {
        length = cut_name(name, length, cut);
        name = cut;
    }
    /* With the zero behind it; what lies behind that is old, and is not read. */
    for (size_t at = 0; at <= length; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t left = length - at;
        memcpy(&word, name + at, left < sizeof word ? left : sizeof word);
        put(&slot->words[NAME + at / sizeof word], word);
    }
}

dt_flight_ref_t dt_flight_submit(dt_flight_t *flight, const dt_flight_operation_t *operation)
{
    uint32_t index = find_slot(flight);
    dt_flight_slot_t *slot = &flight->board->slots[index];
    uint64_t number = ++flight->num_submitted;
    put(&slot->words[NUMBER], 0);
    put(&slot->words[TIMES + DT_FLIGHT_SUBMITTED], (uint64_t)flight->now_ns);
    for (int stage = DT_FLIGHT_AGREED; stage < DT_FLIGHT_STAGES; stage++)
        put(&slot->words[TIMES + stage], 0);
    put(&slot->words[COUNT], (uint64_t)operation->count);
    put(&slot->words[PLACE], 0);
    put(&slot->words[SET_STATUS], (uint32_t)operation->set | (uint64_t)DTRAIN_IN_PROGRESS << 32);
    put(&slot->words[KINDS], operation->kind | (uint64_t)operation->dtype << 8);
    put_name(slot, operation->name, operation->length);
    put(&slot->words[NUMBER], number);
    dt_flight_ref_t ref = number << SLOT_BITS | index;
    set_mark(flight, ref, DT_FLIGHT_SUBMITTED);
    return ref;
}

void dt_flight_agree(dt_flight_t *flight, dt_flight_ref_t ref, uint64_t place)
{
    dt_flight_slot_t *slot = slot_of(flight->board, ref);
    if (ref == 0)
        return;
    if (slot)
        put(&slot->words[PLACE], place);
    reach(flight, slot, ref, DT_FLIGHT_AGREED);
}

void dt_flight_start(dt_flight_t *flight, dt_flight_ref_t ref)
{
    dt_flight_slot_t *slot = slot_of(flight->board, ref);
    if (ref != 0 && (!slot || get(&slot->words[TIMES + DT_FLIGHT_STARTED]) == 0))
        reach(flight, slot, ref, DT_FLIGHT_STARTED);
}

void dt_flight_finish(dt_flight_t *flight, dt_flight_ref_t ref, dtrain_status_t status)
{
    dt_flight_slot_t *slot = slot_of(flight->board, ref);
    if (ref == 0)
        return;
    if (slot && status == DTRAIN_OK)
        dt_flight_start(flight, ref);
    if (slot)
        put(&slot->words[SET_STATUS],
            (uint32_t)get(&slot->words[SET_STATUS]) | (uint64_t)(uint32_t)status << 32);
    reach(flight, slot, ref, DT_FLIGHT_FINISHED);
}

int dt_flight_claim(dt_flight_board_t *board)
{
    return atomic_exchange(&board->is_claimed, 1) == 0;
}

/* ---- Reading ------------------------------------------------------------------------------ */

/* The board may be another process's: whatever it holds, the copy is sound. */
static int read_slot(const dt_flight_slot_t *slot, dt_flight_record_t *record)
{
    uint64_t words[DT_FLIGHT_WORDS];
    for (int i = 0; i < DT_FLIGHT_WORDS; i++)
        words[i] = get(&slot->words[i]);
    if (words[NUMBER] == 0 || get(&slot->words[NUMBER]) != words[NUMBER])
        return 0;
    *record = (dt_flight_record_t){.number = words[NUMBER],
                                   .count = (int64_t)words[COUNT],
                                   .place = words[PLACE],
                                   .set = (int32_t)(uint32_t)words[SET_STATUS],
                                   .status = (int32_t)(words[SET_STATUS] >> 32),
                                   .kind = (uint8_t)words[KINDS],
                                   .dtype = (uint8_t)(words[KINDS] >> 8)};
    for (int stage = 0; stage < DT_FLIGHT_STAGES; stage++)
        record->times_ns[stage] = (int64_t)words[TIMES + stage];
    memcpy(record->name, &words[NAME], NAME_WORDS * sizeof words[0]);
    record->name[NAME_WORDS * sizeof words[0] - 1] = '\0';
    return 1;
}

int dt_flight_read_slot(const dt_flight_board_t *board, int slot, dt_flight_record_t *record)
{
    return read_slot(&board->slots[slot], record);
}

void dt_flight_read_position(const dt_flight_board_t *board, dt_flight_position_t *position)
{
    memset(position, 0, sizeof *position);
    for (int stage = 0; stage < DT_FLIGHT_STAGES; stage++) {
        const dt_flight_mark_t *mark = &board->marks[stage];
        dt_flight_ref_t ref = get(&mark->last);
        const dt_flight_slot_t *slot = &board->slots[ref & (DT_FLIGHT_RECORDS - 1)];
        dt_flight_record_t record;
        position->counts[stage] = get(&mark->count);
        position->times_ns[stage] = atomic_load_explicit(&mark->time_ns, memory_order_acquire);
        if (ref != 0 && read_slot(slot, &record) && record.number == number_of(ref))
            position->last[stage] = record;
    }
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = ((const dt_flight_record_t *)a)->number;
    uint64_t y = ((const dt_flight_record_t *)b)->number;
    return (x > y) - (x < y);
}

/* What is unfinished may be older than its neighbours, so the order is made here. */
int dt_flight_read(const dt_flight_board_t *board, dt_flight_record_t records[DT_FLIGHT_RECORDS])
{
    int count = 0;
    for (int i = 0; i < DT_FLIGHT_RECORDS; i++)
        count += read_slot(&board->slots[i], &records[count]);
    qsort(records, (size_t)count, sizeof *records, by_number);
    return count;
}
