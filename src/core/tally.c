#include "core/tally.h"

#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"

void dt_tally_append(dt_tally_list_t *list, dt_tally_t *tally)
{
    tally->next = NULL;
    tally->previous = list->last;
    if (list->last)
        list->last->next = tally;
    else
        list->first = tally;
    list->last = tally;
}

void dt_tally_remove(dt_tally_list_t *list, dt_tally_t *tally)
{
    if (tally->previous)
        tally->previous->next = tally->next;
    else
        list->first = tally->next;
    if (tally->next)
        tally->next->previous = tally->previous;
    else
        list->last = tally->previous;
}

void dt_variant_free(dt_variant_t *variant)
{
    dt_rank_set_free(&variant->who);
    dt_free(variant->definition);
}

void dt_tally_free(dt_tally_t *tally)
{
    for (int i = 0; i < tally->num_variants; i++)
        dt_variant_free(&tally->variants[i]);
    dt_free(tally->variants);
    dt_rank_set_free(&tally->ready);
    dt_rank_set_free(&tally->absent);
    dt_rank_set_free(&tally->strays);
    dt_free(tally->stray_text);
    dt_free(tally->text);
    dt_free(tally->name);
    dt_free(tally);
}

static int is_variant(const dt_variant_t *variant, const dt_request_t *request)
{
    if (!dt_signature_equal(&variant->signature, &request->signature) ||
        (variant->who.count > 0 && !dt_stamp_equal(variant->stamp, request->stamp)))
        return 0;
    return !variant->definition ||
           (strlen(variant->definition) == request->text_length &&
            memcmp(variant->definition, request->text, request->text_length) == 0);
}

int dt_tally_find_variant(dt_tally_t *tally, const dt_request_t *request)
{
    for (int i = 0; i < tally->num_variants; i++) {
        if (is_variant(&tally->variants[i], request)) {
            tally->variants[i].stamp = request->stamp;
            return i;
        }
    }
    size_t bytes = ((size_t)tally->num_variants + 1) * sizeof *tally->variants;
    dt_variant_t *variants = dt_realloc(tally->variants, bytes);
    if (!variants)
        return -1;
    tally->variants = variants;
    dt_variant_t *variant = &variants[tally->num_variants];
    memset(variant, 0, sizeof *variant);
    variant->signature = request->signature;
    variant->stamp = request->stamp;
    variant->id = DT_ID_NONE;
    if (request->signature.kind == DT_KIND_PSET_ADD) {
        variant->definition = dt_alloc(request->text_length + 1);
        if (!variant->definition)
            return -1;
        memcpy(variant->definition, request->text, request->text_length);
        variant->definition[request->text_length] = '\0';
    }
    if (dt_rank_set_init(&variant->who, tally->ready.size)) {
        dt_variant_free(variant);
        return -1;
    }
    return tally->num_variants++;
}

const dt_signature_t *dt_tally_signature(const dt_tally_t *tally)
{
    for (int i = 0; i < tally->num_variants; i++) {
        if (tally->variants[i].who.count > 0)
            return &tally->variants[i].signature;
    }
    return NULL;
}

const char *dt_tally_kind(const dt_tally_t *tally)
{
    const dt_signature_t *signature = dt_tally_signature(tally);
    return dt_kind_name(signature ? signature->kind : 0);
}

int64_t dt_tally_bytes(const dt_tally_t *tally)
{
    const dt_signature_t *signature = dt_tally_signature(tally);
    return dt_signature_count(signature) * (int64_t)dt_dtype_size((dtrain_dtype_t)signature->dtype);
}

dt_memory_t dt_tally_memory(const dt_tally_t *tally)
{
    const dt_signature_t *first = dt_tally_signature(tally);
    for (int i = 0; first && i < tally->num_variants; i++) {
        const dt_variant_t *variant = &tally->variants[i];
        if (variant->who.count > 0 && variant->signature.memory != first->memory)
            return DT_MEMORY_ANY;
    }
    return first ? (dt_memory_t)first->memory : DT_MEMORY_ANY;
}

uint32_t dt_tally_step(const dt_tally_t *tally)
{
    uint32_t step = 0;
    for (int i = 0; i < tally->num_variants; i++) {
        const dt_variant_t *variant = &tally->variants[i];
        if (variant->who.count > 0 && variant->stamp.step > step)
            step = variant->stamp.step;
    }
    return step;
}

const char *dt_tally_what(const dt_tally_t *tally, char text[DT_KEY_TEXT_MAX])
{
    return dt_pset_key_describe(tally->name, tally->length, text, DT_KEY_TEXT_MAX);
}

static int variants_agree(const dt_variant_t *a, const dt_variant_t *b)
{
    return dt_signature_agrees(&a->signature, &b->signature) &&
           dt_stamp_equal(a->stamp, b->stamp) &&
           (!a->definition || strcmp(a->definition, b->definition) == 0);
}

void dt_tally_ready(const dt_tally_t *tally, const dt_variant_t **first,
                    const dt_variant_t **second)
{
    *first = *second = NULL;
    for (int i = 0; i < tally->num_variants && !*second; i++) {
        const dt_variant_t *variant = &tally->variants[i];
        if (variant->who.count == 0)
            continue;
        if (!*first)
            *first = variant;
        else if (!variants_agree(*first, variant))
            *second = variant;
    }
}

const dt_signature_t *dt_tally_transfer(const dt_tally_t *tally)
{
    const dt_signature_t *transfer = NULL;
    for (int i = tally->num_variants - 1; i >= 0; i--) {
        if (tally->variants[i].who.count == 0)
            continue;
        transfer = &tally->variants[i].signature;
        if (transfer->kind != DT_KIND_TRANSFER)
            return NULL;
    }
    return transfer;
}

int dt_tally_goes_on_without(const dt_tally_t *tally)
{
    return tally->set->joined.count > 0 && !tally->is_join && !tally->is_change &&
           !dt_tally_transfer(tally);
}

int dt_tally_is_complete(const dt_tally_t *tally)
{
    const dt_variant_t *first, *second;
    const dt_pset_t *set = tally->set;
    const dt_signature_t *transfer = dt_tally_transfer(tally);
    if (transfer) {
        dt_tally_ready(tally, &first, &second);
        return second || (dt_rank_set_has(&tally->ready, transfer->root) &&
                          dt_rank_set_has(&tally->ready, transfer->peer));
    }
    return tally->num_ready == set->size ||
           (dt_tally_goes_on_without(tally) &&
            dt_rank_set_is_covered(&set->members, &tally->ready, &set->joined));
}

int dt_tally_is_light(const dt_tally_t *tally)
{
    return tally->status != DTRAIN_OK ||
           (dt_kind_traits(dt_tally_signature(tally)->kind)->is_control && !tally->is_join);
}
