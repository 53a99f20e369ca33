#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <string>

#include "pipeline/teacher/teacher_endpoint.hpp"

namespace distilld {

/// What a server that has no page for what it was asked seems to be, by its own pages, to be put behind what is said of
/// the wait: "; …" with the protocol that it speaks where that is another one. Empty where the endpoint's protocol is
/// to be found out anyway. Each page is asked once. Throws operation_aborted when cancelled.
boost::asio::awaitable<std::string> look_at_server(TeacherEndpoint& endpoint, std::chrono::nanoseconds deadline);

}  // namespace distilld
