#include "server/settings/settings_table.hpp"

namespace distilld {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Checks the form ADDRESS:PORT or [v6]:PORT. Only binding shows whether the address exists.
std::string wrong_listen(const std::string& text) {
    const auto colon = text.rfind(':');
    const auto port = colon == std::string::npos ? std::string() : text.substr(colon + 1);
    const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
    if (colon == 0 || !digits || std::stoul(port) > 65535) {
        return "must be ADDRESS:PORT, such as 127.0.0.1:8500 or [::1]:8500";
    }
    return "";
}

constexpr api::TextForm kListenForm{.values = "ADDRESS:PORT", .check = wrong_listen};

std::vector<SettingConflict> check_streams(const ServiceSettings& settings) {
    if (settings.server.max_streams <= settings.server.max_connections) {
        return {};
    }
    return {{"server.max_streams", "must not be more than server.max_connections, which is " +
                                       std::to_string(settings.server.max_connections)}};
}

}  // namespace

SettingsSection server_section() {
    return {
        .name = "server",
        .help = "the HTTP server, and the shutdown of the service",
        .settings =
            {
                {.name = "listen",
                 .kind = api::make_text(&ServerSettings::listen, {.form = &kListenForm, .type_name = "ADDRESS:PORT"}),
                 .help = "where the service listens; port 0 = any free one"},
                {.name = "hosts",
                 .kind = make_names(&ServerSettings::hosts, {.type_name = "NAME"}),
                 .help = "further names or addresses of the service that requests may use",
                 .flag = "--host"},
                {.name = "max_connections",
                 .kind = api::make_integer(&ServerSettings::max_connections, {4, 1'000'000}),
                 .help = "concurrent connections, within the limit of file descriptors"},
                {.name = "max_streams",
                 .kind = api::make_integer(&ServerSettings::max_streams, {0, 1'000'000}),
                 .help = "concurrent streams (events, artifacts, files), 503 beyond that; 0 = half of the connections"},
                {.name = "heartbeat",
                 .kind = api::make_duration(&ServerSettings::heartbeat, milliseconds(100), hours(1)),
                 .help = "time after which a silent event stream sends a comment"},
                {.name = "body_limit",
                 .kind = api::make_size(&ServerSettings::body_limit, {1ULL << 10, 1ULL << 30}),
                 .help = "largest body of a request"},
                {.name = "max_upload_size",
                 .kind = api::make_size(&ServerSettings::max_upload_size, {1, 1ULL << 50}),
                 .help = "largest file that /v1/files takes"},
                {.name = "upload_space",
                 .kind = api::make_size(&ServerSettings::upload_space, {1, 1ULL << 60}),
                 .help = "total size of the files of /v1/files; 507 beyond that"},
                {.name = "header_timeout",
                 .kind = api::make_duration(&ServerSettings::header_timeout, seconds(1), hours(1)),
                 .help = "time for the head of a request to arrive, and again for its body"},
                {.name = "idle_timeout",
                 .kind = api::make_duration(&ServerSettings::idle_timeout, seconds(1), hours(24)),
                 .help = "time after which a connection without a request is closed"},
                {.name = "handler_timeout",
                 .kind = api::make_duration(&ServerSettings::handler_timeout, seconds(1), hours(24)),
                 .help = "time for the answer to a request, except event streams; 503 after that"},
                {.name = "drain_timeout",
                 .kind = api::make_duration(&ServerSettings::drain_timeout, seconds(1), hours(24)),
                 .help = "time from SIGTERM to the end of the service; workers that take longer are killed, and their "
                         "jobs continue from their last checkpoint at the next start"},
            },
        .check = check_streams};
}

}  // namespace distilld
