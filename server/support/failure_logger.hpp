#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include "pipeline/async/failure_message.hpp"
#include "server/support/log.hpp"

namespace distilld {

/// Logs what somebody has thrown, as "`what`: its message". For TaskGroupOptions::on_failure.
[[nodiscard]] inline std::function<void(const std::exception_ptr&)> failure_logger(std::string component,
                                                                                   std::string what = "unexpected") {
    return [component = std::move(component), what = std::move(what)](const std::exception_ptr& failure) {
        log::error(component, what + ": " + failure_message(failure));
    };
}

}  // namespace distilld
