/*
 * churn.c ROUNDS - dtrain_init, some work and dtrain_shutdown, over and over in one process.
 * Nothing may grow: descriptors, threads, mappings, memory. Prints what there was; exit status 1
 * when it grew.
 */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dtrain/dtrain.h>

enum { WARM_UP = 20, COUNT = 20000 };

typedef struct usage {
    int descriptors, threads, mappings;
    long resident_kib;
    size_t heap_bytes;
} usage_t;

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

static usage_t measure(void)
{
    char line[512];
    usage_t usage = {.descriptors = count_entries("/proc/self/fd"),
                     .threads = count_entries("/proc/self/task"),
                     .heap_bytes = mallinfo2().uordblks};
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        usage.mappings++;
    if (maps)
        fclose(maps);
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, "VmRSS:", 6) == 0)
            usage.resident_kib = strtol(line + 6, NULL, 10);
    }
    if (status)
        fclose(status);
    return usage;
}

static int run_round(void)
{
    static float private[COUNT];
    void *shared = NULL;
    if (dtrain_init(NULL) != DTRAIN_OK)
        return -1;
    int failed = dtrain_mem_alloc(&shared, sizeof private, DTRAIN_DEVICE_CPU) != DTRAIN_OK;
    for (int i = 0; !failed && i < 2; i++) {
        float *data = i ? shared : private;
        for (int k = 0; k < COUNT; k++)
            data[k] = 1;
        failed = dtrain_allreduce(i ? "shared" : "private", data, data, COUNT, DTRAIN_DTYPE_F32,
                                  DTRAIN_OP_SUM) != DTRAIN_OK ||
                 data[COUNT - 1] != (float)dtrain_size();
    }
    return dtrain_shutdown() != DTRAIN_OK || failed ? -1 : 0;
}

static void print(const char *when, usage_t usage)
{
    printf("%s: %d descriptors, %d threads, %d mappings, %ld KiB resident, %zu bytes allocated\n",
           when, usage.descriptors, usage.threads, usage.mappings, usage.resident_kib,
           usage.heap_bytes);
}

int main(int argc, char **argv)
{
    int rounds = argc == 2 ? (int)strtol(argv[1], NULL, 10) : 0;
    usage_t before = {0};
    for (int round = 0; round < rounds; round++) {
        if (round == WARM_UP)
            before = measure();
        if (run_round()) {
            fprintf(stderr, "FAILED: round %d: %s\n", round, dtrain_last_error());
            return 1;
        }
    }
    usage_t after = measure();
    print("before", before);
    print("after", after);
    /* MPI takes a page now and then; a leak of ours would be there in each round. */
    int slack = rounds / 20;
    return rounds <= WARM_UP || after.descriptors > before.descriptors ||
           after.threads > before.threads || after.mappings > before.mappings + slack ||
           after.resident_kib > before.resident_kib + 4L * rounds ||
           after.heap_bytes > before.heap_bytes + 64 * (size_t)rounds;
}
