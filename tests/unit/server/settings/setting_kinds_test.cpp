#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/settings/settings_table.hpp"

namespace distilld {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

/// What a setting becomes by a value; the complaint when it does not take it.
std::string by_value(const char* name, const boost::json::value& value, ServiceSettings& settings) {
    const auto wrong = read_setting(*settings_table().setting(name), value, "/base", settings);
    return wrong.empty() ? "" : wrong.front();
}

std::string by_words(const char* name, const std::vector<std::string>& words, ServiceSettings& settings) {
    return by_value(name, settings_table().setting(name)->kind->value_of(words), settings);
}

TEST(SettingKinds, Durations) {
    ServiceSettings settings;
    const auto& time = settings.server.drain_timeout;
    EXPECT_EQ(by_words("server.drain_timeout", {"90"}, settings), "");
    EXPECT_EQ(time, milliseconds(90'000));
    for (const auto& [text, expected] :
         std::initializer_list<std::pair<const char*, milliseconds>>{{"1500ms", milliseconds(1500)},
                                                                     {"2.5s", milliseconds(2500)},
                                                                     {"1.5", milliseconds(1500)},
                                                                     {"1e3", std::chrono::seconds(1000)},
                                                                     {"5m", std::chrono::minutes(5)},
                                                                     {"24h", std::chrono::hours(24)}}) {
        EXPECT_EQ(by_words("server.drain_timeout", {text}, settings), "") << text;
        EXPECT_EQ(time, expected) << text;
    }
    const auto before = time;
    for (const auto* text : {"", "soon", "-1", "-1s", "5 m", "5d", "25h", "999ms", "0", "1.0005", "nan", "inf",
                             "99999999999999999999", "0x10", "5mm"}) {
        EXPECT_EQ(by_words("server.drain_timeout", {text}, settings),
                  "must be a duration from 1s to 24h (seconds, or a text such as \"500ms\", \"90s\", \"5m\")")
            << text;
        EXPECT_EQ(time, before) << text;
    }
    const auto& kind = settings_table().setting("server.drain_timeout")->kind;
    EXPECT_EQ(by_value("server.drain_timeout", 1.5, settings), "");
    EXPECT_EQ(kind.show(settings), "1500ms");
    EXPECT_EQ(by_value("server.drain_timeout", 120, settings), "");
    EXPECT_EQ(kind.show(settings), "2m");
    EXPECT_NE(by_value("server.drain_timeout", true, settings), "");
    EXPECT_NE(by_value("server.drain_timeout", -3, settings), "");
}

TEST(SettingKinds, SizesAndWholeNumbers) {
    ServiceSettings settings;
    EXPECT_EQ(by_words("server.body_limit", {"4096"}, settings), "");
    EXPECT_EQ(settings.server.body_limit, 4096U);
    EXPECT_EQ(by_words("server.body_limit", {"1.5MiB"}, settings), "");
    EXPECT_EQ(settings.server.body_limit, 1'572'864U);
    EXPECT_EQ(settings_table().setting("server.body_limit")->kind.show(settings), "1536KiB");
    EXPECT_THAT(by_words("server.body_limit", {"2GiB"}, settings),
                ::testing::StartsWith("must be a size from 1KiB to"));
    EXPECT_NE(by_words("server.body_limit", {"8MB"}, settings), "");

    EXPECT_EQ(by_words("jobs.slots", {"1024"}, settings), "");
    EXPECT_EQ(settings.jobs.slots, 1024U);
    for (const auto* text : {"1025", "2.5", "3s", "two", "-1", "", "3 4", "18446744073709551617"}) {
        EXPECT_EQ(by_words("jobs.slots", {text}, settings), "must be a whole number from 0 to 1024") << text;
    }
    EXPECT_NE(by_value("jobs.slots", "2", settings), "") << "a text in a file is not a number";
    EXPECT_EQ(settings.jobs.slots, 1024U);
}

TEST(SettingKinds, TextsPathsAndChoices) {
    ServiceSettings settings;
    EXPECT_EQ(by_words("server.hosts", {"a", "b.example", "c"}, settings), "");
    EXPECT_THAT(settings.server.hosts, ElementsAre("a", "b.example", "c"));
    EXPECT_EQ(by_words("server.hosts", {"a", "a"}, settings), "entry 2 is listed twice");
    EXPECT_EQ(by_value("server.hosts", boost::json::array{"a", 3}, settings), "entry 2 must be a text");
    EXPECT_EQ(by_value("server.hosts", "a", settings), "must be a list of texts");
    EXPECT_THAT(settings.server.hosts, ElementsAre("a", "b.example", "c"));
    EXPECT_EQ(by_words("security.roots", {"data", "/models/"}, settings), "");
    EXPECT_THAT(settings.security.roots, ElementsAre("/base/data", "/models"));

    EXPECT_EQ(by_words("jobs.data_dir", {"here/../there"}, settings), "");
    EXPECT_EQ(settings.jobs.data_dir, "/base/there");
    EXPECT_EQ(by_words("jobs.data_dir", {"/elsewhere"}, settings), "");
    EXPECT_EQ(settings.jobs.data_dir, "/elsewhere");
    EXPECT_EQ(by_words("teacher.key_root", {"a\nb"}, settings), "must not contain control characters");
    EXPECT_EQ(by_words("teacher.key_root", {std::string(5000, 'a')}, settings), "is longer than 4096 bytes");

    EXPECT_EQ(by_words("log.level", {"debug"}, settings), "");
    EXPECT_EQ(settings.log.level, log::Level::debug);
    EXPECT_EQ(by_words("log.level", {"warm"}, settings), "must be debug, info, warn or error; did you mean \"warn\"?");
    EXPECT_EQ(by_words("log.json", {"yes"}, settings), "");
    EXPECT_TRUE(settings.log.json);
    EXPECT_EQ(by_words("log.json", {"0"}, settings), "");
    EXPECT_FALSE(settings.log.json);
    EXPECT_EQ(by_words("log.json", {"perhaps"}, settings), "must be true or false");

    for (const auto* bad : {"8500", ":8500", "host:", "host:65536", "host:85x", ""}) {
        EXPECT_NE(by_words("server.listen", {bad}, settings), "") << bad;
    }
    EXPECT_EQ(by_words("server.listen", {"[::1]:0"}, settings), "");
}

}  // namespace
}  // namespace distilld
