#include <string.h>

#include "base/memory.h"
#include "core/negotiator_state.h"

/* Signatures of one name that get an id; the shapes of a name that changes with every step are
 * not remembered beyond that. */
#define VARIANTS_CACHED_MAX 64

/* Gives the pair of name and signature an id when it has come before. What only two ranks know has
 * none; nor has what ranks give different priorities or have in different memory, since an id
 * stands for these too. */
static void give_id(dt_negotiator_t *negotiator, dt_tally_t *tally, dt_variant_t *variant)
{
    if (variant->signature.kind == DT_KIND_TRANSFER || variant->who.count != tally->ready.count)
        return;
    uint64_t hash = dt_hash(tally->name, tally->length) ^ dt_signature_hash(&variant->signature);
    hash |= 1; /* never the empty place's 0 */
    uint64_t *place = &negotiator->recent[(hash >> 1) % DT_RECENT_COUNT];
    if (*place != hash) {
        *place = hash;
        return;
    }
    if (tally->num_variants > VARIANTS_CACHED_MAX)
        return;
    dt_cached_t cached = {.tally = tally, .variant = (int)(variant - tally->variants)};
    if (negotiator->free_id >= 0) {
        variant->id = (uint32_t)negotiator->free_id;
        negotiator->free_id = negotiator->ids[variant->id].variant;
        negotiator->ids[variant->id] = cached;
        return;
    }
    if (negotiator->num_ids == negotiator->ids_capacity) {
        uint32_t capacity = negotiator->ids_capacity ? 2 * negotiator->ids_capacity : 256;
        dt_cached_t *ids = dt_realloc(negotiator->ids, capacity * sizeof *ids);
        if (!ids)
            return; /* it works without */
        negotiator->ids = ids;
        negotiator->ids_capacity = capacity;
    }
    negotiator->ids[negotiator->num_ids] = cached;
    variant->id = negotiator->num_ids++;
}

/* Lists the ranks of a set in the entry. */
static void put_ranks(dt_negotiator_t *negotiator, const dt_rank_set_t *set, dt_entry_t *entry)
{
    for (int rank = 0; rank < set->size; rank++) {
        if (dt_rank_set_has(set, rank))
            negotiator->absent[entry->num_absent++] = (uint32_t)rank;
    }
    entry->absent = (const uint8_t *)negotiator->absent;
}

static void put_error(dt_negotiator_t *negotiator, const dt_tally_t *tally, dt_entry_t *entry)
{
    const dt_rank_set_t *world = &dt_psets_find(negotiator->psets, DTRAIN_PSET_WORLD)->members;
    entry->kind = DT_ENTRY_ERROR;
    entry->status = tally->status;
    entry->text_length = strlen(entry->text);
    entry->step = dt_tally_step(tally);
    dt_rank_set_subtract(&negotiator->some, world, &tally->ready);
    put_ranks(negotiator, &negotiator->some, entry);
}

static void put_agreed(dt_negotiator_t *negotiator, dt_tally_t *tally, dt_variant_t *agreed,
                       dt_entry_t *entry)
{
    /* A rank that has joined may not know what an id means, and does not learn it. */
    int is_without = tally->absent.bits && tally->absent.count > 0;
    int may_have_id = !is_without && !tally->is_join && !tally->is_change &&
                      agreed->who.count == tally->ready.count;
    if (agreed->id != DT_ID_NONE && may_have_id) {
        entry->kind = DT_ENTRY_CACHED;
        entry->id = agreed->id;
        return;
    }
    if (may_have_id)
        give_id(negotiator, tally, agreed);
    entry->kind = DT_ENTRY_NEW;
    entry->id = may_have_id ? agreed->id : DT_ID_NONE;
    entry->signature = agreed->signature;
    if (tally->is_join)
        entry->signature.root = tally->last_joined;
    /* Who has joined puts in memory of another kind. */
    entry->signature.memory = is_without ? DT_MEMORY_ANY : (uint64_t)dt_tally_memory(tally);
    if (is_without)
        put_ranks(negotiator, &tally->absent, entry);
}

static int note_written(dt_negotiator_t *negotiator, const dt_tally_t *tally,
                        const dt_buffer_t *verdict)
{
    if (negotiator->num_written == negotiator->written_capacity) {
        uint32_t capacity = negotiator->written_capacity ? 2 * negotiator->written_capacity : 256;
        dt_written_t *written = dt_realloc(negotiator->written, capacity * sizeof *written);
        if (!written)
            return -1;
        negotiator->written = written;
        negotiator->written_capacity = capacity;
    }
    const dt_pset_t *set = tally->status == DTRAIN_OK ? tally->set : NULL;
    dt_written_t entry = {.end = verdict->length, .set = set};
    negotiator->written[negotiator->num_written++] = entry;
    negotiator->is_partial |= set && set->size < negotiator->topology->size;
    return 0;
}

static void put_verdict(dt_negotiator_t *negotiator, dt_tally_t *tally, dt_buffer_t *verdict)
{
    dt_entry_t entry = {.name = tally->name, .name_length = tally->length};
    const dt_variant_t *first, *second;
    dt_tally_ready(tally, &first, &second);
    entry.text = tally->text ? tally->text : "";
    if (tally->status != DTRAIN_OK)
        put_error(negotiator, tally, &entry);
    else
        put_agreed(negotiator, tally, &tally->variants[first - tally->variants], &entry);
    dt_put_entry(verdict, &entry);
    if (note_written(negotiator, tally, verdict))
        verdict->failed = 1;
}

/* Makes the tally ready for the next operation of its name, or drops it when nothing of it is
 * cached. Variants without an id go; those with one keep their index, which ids[] points to. */
static void reset(dt_negotiator_t *negotiator, dt_tally_t *tally)
{
    int kept = 0;
    for (int i = 0; i < tally->num_variants; i++) {
        if (tally->variants[i].id != DT_ID_NONE) {
            dt_rank_set_clear(&tally->variants[i].who);
            if (kept != i) {
                dt_variant_t moved = tally->variants[i];
                tally->variants[i] = tally->variants[kept];
                tally->variants[kept] = moved;
                negotiator->ids[moved.id].variant = kept;
            }
            kept++;
        }
    }
    for (int i = kept; i < tally->num_variants; i++)
        dt_variant_free(&tally->variants[i]);
    tally->num_variants = kept;
    if (kept == 0) {
        dt_map_remove(&negotiator->names, tally->name, tally->length);
        dt_tally_free(tally);
        return;
    }
    dt_rank_set_clear(&tally->ready);
    if (tally->absent.bits)
        dt_rank_set_clear(&tally->absent);
    tally->num_ready = 0;
    dt_free(tally->text);
    tally->text = NULL;
    tally->status = DTRAIN_OK;
    tally->refused_by = -1;
    tally->is_decided = tally->is_held = 0;
}

uint32_t dt_negotiator_verdict(dt_negotiator_t *negotiator, int64_t room, dt_buffer_t *verdict)
{
    dt_negotiator_settle(negotiator);
    if (!negotiator->has_priorities)
        room = INT64_MAX;
    uint32_t count = 0;
    size_t count_at = 0;
    negotiator->num_written = 0;
    negotiator->is_partial = 0;
    for (dt_tally_t *tally;
         (tally = negotiator->settled.first) && (room > 0 || dt_tally_is_light(tally));) {
        if (count++ == 0) {
            dt_put_header(verdict, DT_MESSAGE_VERDICT);
            count_at = verdict->length;
            dt_put_u32(verdict, 0);
        }
        if (!dt_tally_is_light(tally))
            room -= dt_tally_bytes(tally) + 1;
        put_verdict(negotiator, tally, verdict);
        dt_tally_remove(&negotiator->settled, tally);
        reset(negotiator, tally);
    }
    if (count > 0)
        dt_patch_u32(verdict, count_at, count);
    return count;
}

int dt_negotiator_part(const dt_negotiator_t *negotiator, int rank, const dt_buffer_t *verdict,
                       dt_buffer_t *part)
{
    if (!negotiator->is_partial)
        return 0;
    uint32_t count = 0;
    dt_buffer_clear(part);
    dt_put_header(part, DT_MESSAGE_PART);
    size_t count_at = part->length, at = count_at + sizeof count;
    dt_put_u32(part, 0);
    for (uint32_t i = 0; i < negotiator->num_written; i++) {
        const dt_written_t *written = &negotiator->written[i];
        if (!written->set || dt_rank_set_has(&written->set->members, rank)) {
            dt_buffer_append(part, verdict->data + at, written->end - at);
            count++;
        }
        at = written->end;
    }
    dt_patch_u32(part, count_at, count);
    if (count == 0)
        part->length = 0;
    return 1;
}

/* Frees a tally's ids for others. */
static void free_ids(dt_negotiator_t *negotiator, const dt_tally_t *tally)
{
    for (int i = 0; i < tally->num_variants; i++) {
        uint32_t id = tally->variants[i].id;
        if (id == DT_ID_NONE)
            continue;
        dt_cached_t freed = {.tally = NULL, .variant = (int)negotiator->free_id};
        negotiator->ids[id] = freed;
        negotiator->free_id = id;
    }
}

void dt_negotiator_forget(dt_negotiator_t *negotiator, int32_t pset)
{
    for (uint32_t id = 0; id < negotiator->num_ids; id++) {
        dt_tally_t *tally = negotiator->ids[id].tally;
        if (!tally || dt_pset_key_read(tally->name, tally->length, NULL) != pset)
            continue;
        free_ids(negotiator, tally);
        dt_map_remove(&negotiator->names, tally->name, tally->length);
        dt_tally_free(tally);
    }
}
