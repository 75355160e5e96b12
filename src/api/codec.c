/* codec.c - codecs of the library; dtrain.h says what each function does. */
#include "reduce/codec.h"
#include "base/memory.h"
#include "base/status.h"

dtrain_status_t dtrain_codec_create(const char *name, dtrain_codec_t **codec)
{
    if (!name || !codec)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_codec_create: %s is NULL",
                       name ? "codec" : "name");
    dt_codec_t *made = dt_alloc(sizeof *made);
    if (!made)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a codec");
    dtrain_status_t status = dt_codec_make(name, made);
    if (status != DTRAIN_OK) {
        dt_free(made);
        return status;
    }
    *codec = &made->base;
    return DTRAIN_OK;
}

void dtrain_codec_destroy(dtrain_codec_t *codec)
{
    dt_free(codec); /* the first member of what was made */
}
