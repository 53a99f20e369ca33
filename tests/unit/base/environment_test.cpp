#include "base/environment.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

TEST(Environment, AnEmptyVariableIsSetAndAMissingOneIsNot) {
    constexpr const char* kName = "DISTILLD_TEST_OF_THE_ENVIRONMENT";
    EXPECT_EQ(environment_variable(kName), std::nullopt);
    ASSERT_EQ(::setenv(kName, "", 1), 0);
    EXPECT_EQ(environment_variable(kName), "");
    ASSERT_EQ(::setenv(kName, "a=b ", 1), 0);
    EXPECT_EQ(environment_variable(kName), "a=b ");
    ASSERT_EQ(::unsetenv(kName), 0);
}

}  // namespace
}  // namespace distilld
