/* fuzz_corpus FOLDER - writes what the targets begin with, made by the library's own encoders:
 * FOLDER/wire/…, detect/…, config/… and state/…. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/detect/detect_codec.h"
#include "core/wire.h"
#include "optim/state_file.h"

static const char *folder;
static int failed;

static void make_path(const char *name, char *path, size_t cap)
{
    snprintf(path, cap, "%s/%s", folder, name);
}

static void save(const char *name, const void *bytes, size_t length)
{
    char path[512];
    make_path(name, path, sizeof path);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, length, file) != length || fclose(file)) {
        fprintf(stderr, "fuzz_corpus: cannot write %s\n", path);
        failed = 1;
    }
}

/* ---- Control messages -------------------------------------------------------------------------
 */

static dt_signature_t signature_of(dt_kind_t kind)
{
    dt_signature_t signature = {.kind = (uint8_t)kind,
                                .dtype = DTRAIN_DTYPE_F32,
                                .ndim = 2,
                                .prescale = 1,
                                .postscale = 1,
                                .shape = {3, 5}};
    if (kind == DT_KIND_ALLREDUCE) {
        snprintf(signature.codec, sizeof signature.codec, "int8");
        signature.coded_bytes = 19;
    }
    if (kind == DT_KIND_TRANSFER)
        signature.peer = 1;
    return signature;
}

static void save_report(dt_kind_t kind)
{
    char name[64];
    dt_buffer_t report = {0};
    dt_request_t request = {.name = "layer.1", .name_length = 7, .signature = signature_of(kind)};
    dt_request_t refused = {
        .name = "x", .name_length = 1, .status = -1, .text = "no", .text_length = 2};
    if (kind == DT_KIND_PSET_ADD) {
        request.text = "0 1";
        request.text_length = 3;
    }
    dt_put_header(&report, DT_MESSAGE_REPORT);
    dt_put_u32(&report, 0);
    dt_put_u32(&report, 1);
    dt_put_u64(&report, 0);
    dt_put_u32(&report, 1);
    dt_put_u32(&report, 3);
    dt_put_stamp(&report, (dt_stamp_t){.step = 9, .passes = 2});
    dt_put_u32(&report, 2);
    dt_put_request(&report, &request);
    dt_put_request(&report, &refused);
    dt_put_u32(&report, 1);
    dt_put_f64(&report, 1.5);
    dt_put_text(&report, "layer.1", 7);
    snprintf(name, sizeof name, "wire/report-%d", (int)kind);
    save(name, report.data, report.length);
    dt_buffer_free(&report);
}

static void save_verdict(void)
{
    const uint32_t absent[2] = {1, 2};
    dt_buffer_t verdict = {0};
    dt_entry_t entries[] = {{.kind = DT_ENTRY_CACHED, .id = 7},
                            {.kind = DT_ENTRY_NEW,
                             .id = DT_ID_NONE,
                             .name = "x",
                             .name_length = 1,
                             .signature = signature_of(DT_KIND_ALLREDUCE),
                             .absent = (const uint8_t *)absent,
                             .num_absent = 2},
                            {.kind = DT_ENTRY_ERROR,
                             .status = DTRAIN_ERR_MISMATCH,
                             .name = "y",
                             .name_length = 1,
                             .text = "they differ",
                             .text_length = 11,
                             .absent = (const uint8_t *)absent,
                             .num_absent = 1}};
    dt_put_header(&verdict, DT_MESSAGE_VERDICT);
    dt_put_u32(&verdict, 3);
    for (int i = 0; i < 3; i++)
        dt_put_entry(&verdict, &entries[i]);
    save("wire/verdict", verdict.data, verdict.length);
    dt_buffer_clear(&verdict);
    dt_put_end(&verdict, DT_MESSAGE_GONE, DTRAIN_ERR_RANK_LOST, "rank 3 is lost");
    save("wire/gone", verdict.data, verdict.length);
    dt_buffer_free(&verdict);
}

/* ---- The others -------------------------------------------------------------------------------
 */

static void save_frames(void)
{
    for (int type = DT_DETECT_BEAT; type <= DT_DETECT_ANSWER; type++) {
        char name[64];
        uint8_t frame[DT_DETECT_FRAME_MAX];
        dt_detect_message_t message = {
            .type = (dt_detect_type_t)type, .epoch = 1, .status = DTRAIN_ERR_RANK_LOST};
        message.rank = type == DT_DETECT_BEAT ? 0 : 2;
        if (type == DT_DETECT_END || type == DT_DETECT_ANSWER) {
            message.text = "rank 2 died";
            message.text_length = 11;
        }
        snprintf(name, sizeof name, "detect/%d", type);
        save(name, frame, dt_detect_encode(&message, frame));
    }
}

static void save_settings(void)
{
    static const char *const texts[] = {
        "DTRAIN_FUSION_THRESHOLD=64MiB\nDTRAIN_TIMEOUT=off\nDTRAIN_PROCESS_SETS=0,1;2-3\n",
        "DTRAIN_LOG_LEVEL=debug\nDTRAIN_HEARTBEAT=0.25s\nDTRAIN_ISA=avx2\nDTRAIN_BACKEND=self\n",
        "fusion_threshold=1.5GB\nspin_us=20us\njoin_divisor=all\nshared_memory=off\n",
        "OMPI_COMM_WORLD_SIZE=4\nPMI_SIZE=2\nDTRAIN_FUSION_TRESHOLD=1\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "config/%zu", i);
        save(name, texts[i], strlen(texts[i]));
    }
}

static void save_state(int num_shards)
{
    char name[64], path[512];
    float values[12] = {0};
    int64_t shape[2] = {3, 4};
    dt_state_save_t one = {.step = 5, .id = 1, .num_shards = num_shards};
    dt_state_tensor_t tensors[2] = {{.name = "a",
                                     .dtype = DTRAIN_DTYPE_F32,
                                     .ndim = 2,
                                     .shape = shape,
                                     .end = 12,
                                     .data = values},
                                    {.name = "b",
                                     .dtype = DTRAIN_DTYPE_F32,
                                     .ndim = 1,
                                     .shape = shape,
                                     .end = 3,
                                     .data = values}};
    snprintf(name, sizeof name, "state/of%d", num_shards);
    make_path(name, path, sizeof path);
    if (dt_state_write(path, &one, tensors, 2) != DTRAIN_OK) {
        fprintf(stderr, "fuzz_corpus: %s: %s\n", path, dtrain_last_error());
        failed = 1;
    }
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"", "wire", "detect", "config", "state"};
    if (argc != 2)
        return 2;
    folder = argv[1];
    for (int i = 0; i < 5; i++) {
        char path[512];
        make_path(names[i], path, sizeof path);
        mkdir(path, 0777); /* or it is there */
    }
    for (int kind = DT_KIND_ALLREDUCE; kind <= DT_KIND_LAST; kind++)
        save_report((dt_kind_t)kind);
    save_verdict();
    save_frames();
    save_settings();
    save_state(1);
    save_state(2);
    return failed;
}
