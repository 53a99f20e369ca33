#include "server/settings/settings_print.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/paths.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::HasSubstr;

TEST(SettingsPrint, WhatIsPrintedIsReadBackTheSame) {
    const test::TemporaryFolder folder;
    SettingsInput input;
    input.working_directory = folder.path();
    input.environment = {{"DISTILLD_SERVER_BODY_LIMIT", "1MiB"}, {"DISTILLD_LOG_LEVEL", "warn"}};
    input.flags = {{"jobs.data_dir", {"a \"folder\" ü"}},
                   {"server.hosts", {"a", "b.example"}},
                   {"log.json", {"true"}},
                   {"jobs.cancel_grace", {"1500ms"}}};
    const auto first = load_settings(input).value();
    const auto text = settings_toml(first);
    EXPECT_THAT(text, HasSubstr("body_limit = \"1MiB\"  # environment DISTILLD_SERVER_BODY_LIMIT\n"));
    EXPECT_THAT(text, HasSubstr("cancel_grace = \"1500ms\"  # flag --cancel-grace\n"));
    EXPECT_THAT(text, HasSubstr("one per GPU\n# 0 to 1024; default 0\nslots = 0  # default\n"));

    std::ofstream(folder.path() / "again.toml") << text;
    SettingsInput again;
    again.working_directory = "/";
    again.file = folder.path() / "again.toml";
    const auto second = load_settings(again).value();
    for (const auto& section : settings_table().sections) {
        for (const auto& setting : section.settings) {
            EXPECT_EQ(setting.kind.show(second.settings), setting.kind.show(first.settings)) << setting.name;
            EXPECT_EQ(second.sources.at(dotted_name(section, setting)).kind, SettingSource::Kind::file);
        }
    }
}

TEST(SettingsPrint, WhatIsRequiredAndNotGivenIsLeftOut) {
    SettingsInput input;
    input.working_directory = "/";
    EXPECT_THAT(settings_toml(load_settings(input).value()), HasSubstr("# data_dir = …  # not given\n"));
}

TEST(SettingsDocs, ThePageSaysWhatTheTableSays) {
    std::ifstream stream(test::source_dir() / "docs/settings.md");
    std::ostringstream page;
    page << stream.rdbuf();
    EXPECT_EQ(with_settings_tables(page.str()).value(), page.str()) << "run distilld-spec-docs";
    auto stale = page.str();
    const auto row = stale.find("| `jobs.slots` | 0 to 1024");
    ASSERT_NE(row, std::string::npos);
    stale.replace(row, 26, "| `jobs.slots` | 0 to 1025");
    EXPECT_EQ(with_settings_tables(stale).value(), page.str());
    EXPECT_FALSE(with_settings_tables("no markers"));
}

}  // namespace
}  // namespace distilld
