#include "pipeline/async/failure_message.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace distilld {
namespace {

TEST(FailureMessage, IsWhatTheExceptionSays) {
    EXPECT_EQ(failure_message(std::make_exception_ptr(std::runtime_error("broken"))), "broken");
    EXPECT_EQ(failure_message(std::make_exception_ptr(7)), "something that is not an exception was thrown");
}

}  // namespace
}  // namespace distilld
