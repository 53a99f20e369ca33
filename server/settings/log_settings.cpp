#include "server/settings/settings_table.hpp"

namespace distilld {

SettingsSection log_section() {
    return {.name = "log",
            .help = "log lines, which go to stderr",
            .settings = {
                {.name = "json",
                 .kind = api::make_boolean(&LogSettings::json),
                 .help = "write log lines as JSON objects",
                 .flag = "--log-json"},
                {.name = "level",
                 .kind = api::make_choice(&LogSettings::level, log::kLevelNames),
                 .help = "lowest level that is written",
                 .flag = "--log-level"},
            }};
}

}  // namespace distilld
