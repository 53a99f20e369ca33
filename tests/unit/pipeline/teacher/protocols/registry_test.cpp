#include "pipeline/teacher/protocols/registry.hpp"

#include <gtest/gtest.h>

#include <set>

namespace distilld {
namespace {

TEST(TeacherProtocols, EachNameHasARow) {
    EXPECT_EQ(teacher_protocols().size(), kTeacherProtocolNames.size());
    for (const auto& name : kTeacherProtocolNames) {
        const TeacherProtocolRow* row = find_protocol(teacher_protocols(), name.value);
        ASSERT_NE(row, nullptr) << name.text;
        EXPECT_EQ(row->name, name.text);
        EXPECT_NE(row->make_adapter, nullptr);
        EXPECT_TRUE(row->default_path.starts_with("/")) << name.text;
    }
    EXPECT_EQ(find_protocol(teacher_protocols(), static_cast<TeacherProtocol>(1000)), nullptr);
    EXPECT_EQ(find_protocol({}, kDefaultTeacherProtocol), nullptr);
}

TEST(TeacherProtocols, FillTheModelIntoTheirPath) {
    const auto path = [](TeacherProtocol protocol) {
        return default_path_for(*find_protocol(teacher_protocols(), protocol), "big/one %");
    };
    EXPECT_EQ(path(TeacherProtocol::kserve), "/v2/models/big%2Fone%20%25/infer");
    EXPECT_EQ(path(TeacherProtocol::seed), "/v1/completions");
    EXPECT_EQ(path(TeacherProtocol::sglang), "/generate");
}

}  // namespace
}  // namespace distilld
