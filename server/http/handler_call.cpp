#include "server/http/handler_call.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <utility>

#include "pipeline/async/deadline.hpp"
#include "server/http/reply.hpp"
#include "server/http/watches.hpp"
#include "server/support/failure_logger.hpp"
#include "server/support/log.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using Answer = std::optional<http::Response>;  // nullopt: deadline passed

/// Starts the handler inside a coroutine, so that an exception before its first suspension is caught too.
asio::awaitable<http::Response> invoke(const Route& route, http::Request request) {
    co_return co_await route.handler(std::move(request));
}

/// nullopt: the client has left.
asio::awaitable<std::optional<Answer>> invoke_in_time(Connection& connection, const Route& route, http::Request request,
                                                      std::chrono::seconds deadline) {
    auto answering = with_deadline(invoke(route, std::move(request)), deadline);
    if (!route.only_for_client) {
        Answer answer = co_await std::move(answering);
        co_return answer;
    }
    co_return co_await run_until(std::move(answering), until_peer_leaves(connection));
}

}  // namespace

asio::awaitable<std::optional<http::Response>> call_handler(Connection& connection, const Route& route,
                                                            http::Request request, std::chrono::seconds deadline,
                                                            std::string label) {
    connection.stream.expires_never();
    std::optional<Answer> outcome;
    std::exception_ptr failure;
    try {
        outcome = co_await invoke_in_time(connection, route, std::move(request), deadline);
    } catch (...) {
        failure = std::current_exception();
    }
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
        throw boost::system::system_error(asio::error::operation_aborted);
    }
    if (failure) {
        failure_logger("http", label)(failure);
        co_return make_problem(500, "the server failed on this request; its log says more under the request id");
    }
    if (!outcome) {
        co_return std::nullopt;
    }
    if (!*outcome) {
        log::warn("http", label + ": no answer within " + std::to_string(deadline.count()) + " s");
        http::Response late = make_problem(503, "the request took longer than the server allows");
        late.headers.emplace_back("Retry-After", "1");
        co_return late;
    }
    co_return std::move(**outcome);
}

}  // namespace distilld::http
