#include "pipeline/core/teacher_protocol.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace distilld {
namespace {

TEST(TeacherProtocol, NamesGoBothWays) {
    std::set<std::string> texts;
    for (const auto& name : kTeacherProtocolNames) {
        EXPECT_STREQ(to_string(name.value), name.text);
        EXPECT_EQ(value_of(kTeacherProtocolNames, name.text), name.value);
        texts.insert(name.text);
    }
    EXPECT_EQ(texts.size(), kTeacherProtocolNames.size()) << "no two share a name";
    EXPECT_STREQ(to_string(kDefaultTeacherProtocol), "kserve") << "what a spec without a protocol has always meant";
}

TEST(TeacherProtocol, KnowsNoOtherNames) {
    for (const char* text : {"", "Kserve", "kserve ", "seeds", "see"}) {
        EXPECT_EQ(value_of(kTeacherProtocolNames, text), std::nullopt) << text;
    }
    EXPECT_STREQ(to_string(static_cast<TeacherProtocol>(1000)), "unknown");
}

}  // namespace
}  // namespace distilld
