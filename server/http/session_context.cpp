#include "server/http/session_context.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "base/random_hex.hpp"
#include "server/http/authenticator.hpp"

namespace distilld::http {
SessionContext::SessionContext(const boost::asio::any_io_executor& executor, ServerOptions options_in,
                               OriginCheck origin_check_in, Router router_in, Observer observer_in)
    : options(std::move(options_in)),
      origin_check(std::move(origin_check_in)),
      router(std::move(router_in)),
      observer(std::move(observer_in)),
      stop_changed(executor),
      request_id_prefix(random_hex(1)) {}

std::string SessionContext::next_request_id() {
    std::array<char, 24> number{};
    std::snprintf(number.data(), number.size(), "%06llx", static_cast<unsigned long long>(++requests));
    return request_id_prefix + "-" + number.data();
}

const std::shared_ptr<Authenticator>& SessionContext::authenticator_of(const Route* route) const {
    return route != nullptr && route->authenticator ? route->authenticator : options.authenticator;
}

void SessionContext::observe(const Reply& reply, unsigned status, std::string_view made) const {
    if (observer) {
        observer(reply.method, reply.pattern, status, std::chrono::steady_clock::now() - reply.started);
    }
    if (!options.auditor || reply.method == "GET" || reply.method == "HEAD") {
        return;
    }
    AnswerRecord record;
    record.method = reply.method;
    record.path = reply.path;
    record.remote = reply.remote;
    record.caller = reply.caller;
    record.subject = made.empty() ? reply.subject : std::string(made.substr(made.rfind('/') + 1));
    record.request_id = reply.request_id;
    record.status = status;
    options.auditor(record);
}

}  // namespace distilld::http
