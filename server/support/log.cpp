#include "server/support/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace distilld::log {

namespace {

spdlog::level::level_enum to_spdlog(Level level) {
    switch (level) {
        case Level::debug:
            return spdlog::level::debug;
        case Level::info:
            return spdlog::level::info;
        case Level::warn:
            return spdlog::level::warn;
        case Level::error:
            return spdlog::level::err;
    }
    return spdlog::level::info;
}

// One logger a process, made at first use: what it writes to (stderr) is one a process, too.
spdlog::logger& logger() {
    static const std::shared_ptr<spdlog::logger> instance = [] {
        auto made =
            std::make_shared<spdlog::logger>("distilld", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
        made->flush_on(spdlog::level::info);
        return made;
    }();
    return *instance;
}

}  // namespace

void configure(Level min_level, bool json) {
    logger().set_level(to_spdlog(min_level));
    if (json) {
        logger().set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e","level":"%l",%v})");
    }
}

void write(Level level, std::string_view component, std::string_view message) {
    logger().log(to_spdlog(level), "{}: {}", component, message);
}

}  // namespace distilld::log
