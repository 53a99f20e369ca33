#include "server/settings/settings_load.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SettingsLoad : public ::testing::Test {
  protected:
    void write(const std::string& text) {
        std::ofstream(folder_.path() / "etc" / "distilld.toml") << text;
        input_.file = "etc/distilld.toml";
    }
    /// All that is wrong, a line each.
    std::string complaints() {
        const auto loaded = load_settings(input_);
        return loaded ? "" : describe(loaded.error());
    }
    void SetUp() override {
        std::filesystem::create_directory(folder_.path() / "etc");
        input_.working_directory = folder_.path();
    }

    test::TemporaryFolder folder_;
    SettingsInput input_;
};

TEST_F(SettingsLoad, DefaultsWhereNothingIsGiven) {
    const auto loaded = load_settings(input_).value();
    EXPECT_EQ(loaded.settings.server.listen, "127.0.0.1:8500");
    EXPECT_EQ(loaded.settings.jobs.slots, 0U);
    EXPECT_EQ(to_text(loaded.sources.at("jobs.slots")), "default");
    EXPECT_THAT(loaded.missing, ElementsAre("jobs.data_dir: is required, the folder of the job store: --data-dir DIR, "
                                            "DISTILLD_JOBS_DATA_DIR, or data_dir in [jobs] of the file of --config"));
}

TEST_F(SettingsLoad, FlagBeforeEnvironmentBeforeFileBeforeDefault) {
    write("[jobs]\nslots = 2\nmetrics_kept = 200\nmax_worker_restarts = 7\ndata_dir = \"jobs\"\n");
    input_.environment = {
        {"DISTILLD_JOBS_SLOTS", "3"}, {"DISTILLD_JOBS_METRICS_KEPT", "300"}, {"DISTILLD_JOBS_MAX_WORKER_RESTARTS", ""}};
    input_.flags = {{"jobs.slots", {"4"}}};
    const auto loaded = load_settings(input_).value();
    EXPECT_EQ(loaded.settings.jobs.slots, 4U);
    EXPECT_EQ(to_text(loaded.sources.at("jobs.slots")), "flag --slots");
    EXPECT_EQ(loaded.settings.jobs.metrics_kept, 300U);
    EXPECT_EQ(to_text(loaded.sources.at("jobs.metrics_kept")), "environment DISTILLD_JOBS_METRICS_KEPT");
    EXPECT_EQ(loaded.settings.jobs.max_worker_restarts, 7U) << "an empty variable is as none";
    EXPECT_EQ(to_text(loaded.sources.at("jobs.max_worker_restarts")), "file etc/distilld.toml:4:23");
    EXPECT_EQ(loaded.settings.jobs.idempotency_lifetime, std::chrono::hours(24));
    EXPECT_EQ(loaded.settings.jobs.data_dir, folder_.path() / "etc" / "jobs") << "in a file, paths start where it lies";
    EXPECT_THAT(loaded.missing, IsEmpty());
}

TEST_F(SettingsLoad, PathsOfFlagsStartAtTheWorkingDirectory) {
    input_.flags = {{"jobs.data_dir", {"jobs"}}};
    input_.environment = {{"DISTILLD_TEACHER_KEY_ROOT", "keys"}};
    const auto loaded = load_settings(input_).value();
    EXPECT_EQ(loaded.settings.jobs.data_dir, folder_.path() / "jobs");
    EXPECT_EQ(loaded.settings.teacher.key_root, folder_.path() / "keys");
}

TEST_F(SettingsLoad, AnOlderVariableCountsWhereTheOwnIsNotSet) {
    input_.environment = {{"DISTILLD_KEYS_DIR", "/older"}};
    auto loaded = load_settings(input_).value();
    EXPECT_EQ(loaded.settings.teacher.key_root, "/older");
    EXPECT_EQ(to_text(loaded.sources.at("teacher.key_root")), "environment DISTILLD_KEYS_DIR");
    input_.environment["DISTILLD_TEACHER_KEY_ROOT"] = "/own";
    loaded = load_settings(input_).value();
    EXPECT_EQ(loaded.settings.teacher.key_root, "/own");
}

TEST_F(SettingsLoad, EverythingThatIsWrongIsSaidAtOnceAndWhere) {
    write(
        "slots = 2\n"
        "[server]\n"
        "listn = \"127.0.0.1:1\"\n"
        "  max_connections = 0\n"
        "hosts = [\"a\", 3]\n"
        "slots = 3\n"
        "[jobs]\n"
        "slots = \"two\"\n"
        "data_dir = 1979-05-27\n"
        "[sever]\n"
        "listen = 3\n"
        "[[log]]\n");
    input_.environment = {{"DISTILLD_JOBS_METRICS_KEPT", "few"}};
    input_.flags = {{"jobs.slots", {"1025"}}};
    const std::string file = "etc/distilld.toml:";
    const std::string sections = "server, jobs, log, teacher, security, launcher, webhooks";
    EXPECT_EQ(complaints(),
              file + "1:1: slots: settings stand in sections (" + sections + "); did you mean jobs.slots?\n" + file +
                  "3:1: server.listn: there is no such setting; did you mean listen?\n" + file +
                  "6:1: server.slots: there is no such setting; did you mean jobs.slots?\n" + file +
                  "10:2: sever: there is no such section, but " + sections + "; did you mean server?\n" + file +
                  "12:3: log: must be a table: [log]\n" + file +
                  "4:21: server.max_connections: must be a whole number from 4 to 1000000\n" + file +
                  "5:9: server.hosts: entry 2 must be a text\n" + file +
                  "8:9: jobs.slots: must be a whole number from 0 to 1024\n" + file +
                  "9:12: jobs.data_dir: must be a text\n"
                  "DISTILLD_JOBS_METRICS_KEPT: jobs.metrics_kept: must be a whole number from 100 to 10000000\n"
                  "--slots: jobs.slots: must be a whole number from 0 to 1024");
}

TEST_F(SettingsLoad, TextsOfAListMayStandInOneWord) {
    write("[server]\nhosts = [\"a,b\"]\n[security]\nroots = [\"data\"]\n");
    auto settings = load_settings(input_).value().settings;
    EXPECT_THAT(settings.server.hosts, ElementsAre("a,b")) << "a file has lists of its own";
    EXPECT_THAT(settings.security.roots, ElementsAre((folder_.path() / "etc/data").string()));
    input_.environment = {{"DISTILLD_SERVER_HOSTS", "a,b.example,"}};
    input_.flags = {{"security.roots", {"one,/two", "three/"}}};
    settings = load_settings(input_).value().settings;
    EXPECT_THAT(settings.server.hosts, ElementsAre("a", "b.example"));
    EXPECT_THAT(settings.security.roots,
                ElementsAre((folder_.path() / "one").string(), "/two", (folder_.path() / "three").string()));
}

TEST_F(SettingsLoad, StreamsAreNotMoreThanConnections) {
    input_.flags = {{"server.max_connections", {"8"}}, {"server.max_streams", {"8"}}};
    EXPECT_EQ(complaints(), "");
    input_.flags["server.max_streams"] = {"9"};
    EXPECT_EQ(complaints(),
              "--max-streams: server.max_streams: must not be more than server.max_connections, which is 8");
}

TEST_F(SettingsLoad, WhatIsNoTomlIsSaidWithItsPlace) {
    write("[server\nlisten = 3\n");
    EXPECT_THAT(complaints(), ::testing::StartsWith("etc/distilld.toml:1:"));
    write("[jobs]\nslots = 1\nslots = 2\n");
    EXPECT_THAT(complaints(), ::testing::StartsWith("etc/distilld.toml:3:"));
    write(std::string("[jobs]\n\0slots", 13));
    EXPECT_NE(complaints(), "");
}

TEST_F(SettingsLoad, AFileThatIsNotThereOrTooLargeIsAnError) {
    input_.file = "none.toml";
    EXPECT_THAT(complaints(), HasSubstr("none.toml"));
    write(std::string(kSettingsSizeLimit + 1, '#'));
    EXPECT_THAT(complaints(), HasSubstr("distilld.toml"));
    EXPECT_THROW(static_cast<void>(load_settings(input_).value()), ErrorException);
    input_.file = "etc";
    EXPECT_NE(complaints(), "");
}

TEST_F(SettingsLoad, VariablesThatLookMisspeltAreWarnedOf) {
    input_.environment = {{"DISTILLD_JOBS_SLOT", "3"},
                          {"DISTILLD_SERVER_SERVICE_HOST", "10.0.0.1"},
                          {"DISTILLD_SERVER_PORT_8500_TCP", "tcp://10.0.0.1:8500"},
                          {"DISTILLD_KEY_SLOTS", "secret"},
                          {"DISTILLD_JOBS_SLOTS", "2"}};
    EXPECT_THAT(
        load_settings(input_).value().warnings,
        ElementsAre("environment variable DISTILLD_JOBS_SLOT is not a setting; did you mean DISTILLD_JOBS_SLOTS?"));
}

TEST_F(SettingsLoad, OptionsThatTheServiceSetsItselfCannotBeAllowed) {
    write("[launcher]\nallowed_options = [\"account\", \"qos\"]\n");
    EXPECT_EQ(complaints(), "");
    for (const char* name : {"wrap", "wra", "output", "uid", "export", "nodes", "--account", "account=x", "a b", ""}) {
        write(std::string("[launcher]\nallowed_options = [\"") + name + "\"]\n");
        EXPECT_THAT(complaints(), HasSubstr("launcher.allowed_options: entry 1 must ")) << name;
    }
}

TEST_F(SettingsLoad, WorkersRunOnThisMachineOrWhereSlurmPlacesThem) {
    write("[launcher]\nkind = \"slurm\"\n");
    EXPECT_EQ(load_settings(input_).value().settings.launcher.kind, LauncherKind::slurm);
    write("[launcher]\nkind = \"other\"\n");
    EXPECT_THAT(complaints(), HasSubstr("launcher.kind: "));
}

TEST(SettingsTable, NamesFlagsAndVariablesAreUnique) {
    std::set<std::string> names;
    for (const auto& section : settings_table().sections) {
        for (const auto& setting : section.settings) {
            EXPECT_TRUE(names.insert(dotted_name(section, setting)).second);
            EXPECT_TRUE(names.insert(variable_name(section, setting)).second);
            EXPECT_TRUE(names.insert(flag_name(setting)).second) << flag_name(setting);
            EXPECT_FALSE(setting.help.empty());
            // A default is a good value, and writing and reading give the same.
            ServiceSettings settings;
            const auto written = setting.kind.show(settings);
            if (setting.required.empty()) {
                EXPECT_THAT(read_setting(setting, written, "/", settings), ::testing::IsEmpty()) << setting.name;
            }
            EXPECT_EQ(setting.kind.show(settings), written) << setting.name;
        }
    }
}

}  // namespace
}  // namespace distilld
