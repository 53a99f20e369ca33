#include "pipeline/async/abort.hpp"

#include <gtest/gtest.h>

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <stdexcept>

namespace distilld {
namespace {

namespace asio = boost::asio;

TEST(Abort, IsOperationAbortedAndNothingElse) {
    EXPECT_TRUE(is_abort(asio::error::make_error_code(asio::error::operation_aborted)));
    EXPECT_FALSE(is_abort(asio::error::make_error_code(asio::error::eof)));
    EXPECT_FALSE(is_abort(boost::system::error_code()));
}

TEST(Abort, IsSeenInAnException) {
    const auto aborted = std::make_exception_ptr(boost::system::system_error(asio::error::operation_aborted));
    EXPECT_TRUE(is_abort(aborted));
    EXPECT_FALSE(is_abort(std::make_exception_ptr(boost::system::system_error(asio::error::eof))));
    EXPECT_FALSE(is_abort(std::make_exception_ptr(std::runtime_error("broken"))));
    EXPECT_FALSE(is_abort(std::make_exception_ptr(7)));
    EXPECT_FALSE(is_abort(std::exception_ptr()));
}

}  // namespace
}  // namespace distilld
