#include "pipeline/async/abort.hpp"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>

namespace distilld {

bool is_abort(const boost::system::error_code& error) noexcept {
    return error == boost::asio::error::operation_aborted;
}

bool is_abort(const std::exception_ptr& failure) noexcept {
    if (!failure) {
        return false;
    }
    try {
        std::rethrow_exception(failure);
    } catch (const boost::system::system_error& error) {
        return is_abort(error.code());
    } catch (...) {
        return false;
    }
}

}  // namespace distilld
