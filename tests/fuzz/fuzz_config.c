/* Settings: lines of text as an environment, and as keys and values of dtrain_config_set. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/config_table.h"
#include "base/log.h"
#include "fuzz.h"

#define LINES_MAX 16

static void ignore(dtrain_log_level_t level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

/* What was taken is in range. */
static void check(const dt_config_t *config)
{
    FUZZ_CHECK(config->fusion_threshold >= 0 && config->fusion_tensor_limit >= 0);
    FUZZ_CHECK(config->timeout_ns > 0 && config->init_timeout_ns > 0 && config->spin_ns >= -1);
    FUZZ_CHECK(config->heartbeat_ns > 0 && config->link_timeout_ns > 0);
    FUZZ_CHECK(memchr(config->process_sets, 0, sizeof config->process_sets) != NULL);
    FUZZ_CHECK(memchr(config->backend, 0, sizeof config->backend) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *lines[LINES_MAX + 1] = {0}, *rest = NULL;
    int n = 0;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    dt_log_set_sink(ignore, NULL);
    for (char *line = strtok_r(text, "\n", &rest); line && n < LINES_MAX;
         line = strtok_r(NULL, "\n", &rest))
        lines[n++] = line;
    dt_config_t config;
    const char *variable;
    if (dt_config_resolve_from(NULL, lines, &config) == DTRAIN_OK)
        check(&config);
    (void)dt_config_launcher_size_from(lines, &variable);
    dtrain_config_t user;
    (void)dt_config_init(&user, sizeof user);
    for (int i = 0; i < n; i++) {
        char *value = strchr(lines[i], '=');
        if (!value)
            continue;
        *value = '\0';
        const char *key = lines[i];
        (void)dt_config_set(&user, key, value + 1);
    }
    if (dt_config_resolve_from(&user, lines + n, &config) == DTRAIN_OK)
        check(&config);
    free(text);
    return 0;
}
