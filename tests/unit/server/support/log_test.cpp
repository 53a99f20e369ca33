#include "server/support/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/json_text.hpp"

namespace distilld {
namespace {

using ::testing::EndsWith;
using ::testing::MatchesRegex;

std::vector<std::string> written(bool json, const std::vector<std::string>& messages) {
    ::testing::internal::CaptureStderr();
    log::configure(log::Level::info, json);
    for (const auto& message : messages) {
        log::warn("a \"part\"", message);
    }
    log::debug("below", "the level");
    log::configure(log::Level::info);
    std::istringstream text(::testing::internal::GetCapturedStderr());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
        lines.push_back(line);
    }
    return lines;
}

TEST(Log, WritesOneJsonObjectALineWhateverIsSaid) {
    const std::vector<std::string> messages{"plain", R"(quotes " and \ {} %v)", "two\nlines\tand \x01", "Latin-1 \xE8",
                                            ""};
    const auto lines = written(true, messages);
    ASSERT_EQ(lines.size(), messages.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const auto value = parse_json_text(lines[i], 2);
        ASSERT_TRUE(value) << lines[i];
        EXPECT_EQ(value->as_object().size(), 4U);
        EXPECT_EQ(value->at("level").as_string(), "warn");
        EXPECT_EQ(value->at("component").as_string(), "a \"part\"");
        EXPECT_EQ(value->at("message").as_string(), i == 3 ? "Latin-1 \uFFFD" : messages[i]);
        EXPECT_THAT(std::string(value->at("time").as_string()),
                    MatchesRegex(R"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z)"));
    }
}

TEST(Log, F12NoLineSteersATerminal) {
    for (const bool json : {false, true}) {
        const auto lines = written(json, {"\u202Eexe.\u2066 \x1b[2J"});
        ASSERT_EQ(lines.size(), 1U);
        EXPECT_THAT(lines[0], ::testing::HasSubstr(R"(\u202eexe.\u2066 \u001b[2J)"));
        if (json) {
            EXPECT_EQ(parse_json_text(lines[0], 2)->at("message").as_string(), "\u202Eexe.\u2066 \x1b[2J");
        }
    }
}

TEST(Log, WritesTextForPeopleOtherwise) {
    const auto lines = written(false, {"plain"});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_THAT(lines[0], EndsWith(" a \"part\": plain"));
}

}  // namespace
}  // namespace distilld
