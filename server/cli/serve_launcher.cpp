#include "server/cli/serve_launcher.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <utility>

#include "base/files/file_rule.hpp"
#include "base/this_machine.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;

constexpr const char* kLauncherFolder = "launcher";  // specs may not name it: server/security/path_rule.cpp

asio::awaitable<void> ask_for_nodes(const slurm::Commands& commands, Result<std::vector<Node>>& nodes) {
    nodes = co_await commands.nodes();
}

Result<std::string> worker_url(const LauncherSettings& settings, const std::string& listen, bool secure) {
    if (!settings.url.empty()) {
        return settings.url;
    }
    const std::string port = listen.substr(listen.rfind(':'));
    if (listen.starts_with("127.") || listen.starts_with("[::1]") || listen.starts_with("localhost:") || port == ":0") {
        return invalid_input("launcher.url: is required, because other machines cannot reach the service at " + listen);
    }
    return (secure ? "https://" : "http://") + host_name() + port;
}

}  // namespace

Result<void> check_launcher_folder(const LauncherSettings& settings, const std::vector<std::string>& open,
                                   const std::filesystem::path& data_dir) {
    const auto resolved = [](const std::filesystem::path& path) {
        return resolved_path(std::filesystem::absolute(path)).value_or(path);
    };
    if (settings.folder.empty() || is_below(resolved(settings.folder), resolved(data_dir / kLauncherFolder))) {
        return {};
    }
    for (const std::string& folder : open) {
        if (is_below(resolved(settings.folder), resolved(folder))) {
            return invalid_input("launcher.folder: " + settings.folder.string() + " is below " + folder +
                                 ", where job specs may name files, so jobs could read the tokens of others: give a "
                                 "folder elsewhere, or none");
        }
    }
    return {};
}

Result<ClusterAccess> open_cluster(const LauncherSettings& settings, const std::string& listen, bool secure,
                                   const std::filesystem::path& data_dir) {
    auto url = worker_url(settings, listen, secure);
    if (!url) {
        return url.error();
    }
    auto commands = slurm::Commands::find(slurm::usual_commands());
    if (!commands) {
        return invalid_input("launcher.kind is slurm, but " + commands.error().message);
    }
    Result<std::vector<Node>> nodes = io_error("sinfo was not asked");
    asio::io_context context(1);
    asio::co_spawn(context, ask_for_nodes(*commands, nodes), asio::detached);
    context.run();
    if (!nodes) {
        return io_error("launcher.kind is slurm, but Slurm does not answer: " + nodes.error().message);
    }
    auto folder = TokenFolder::open(settings.folder.empty() ? data_dir / kLauncherFolder : settings.folder);
    if (!folder) {
        return folder.error();
    }
    return ClusterAccess{*std::move(commands), *std::move(folder), *std::move(url)};
}

}  // namespace distilld::cli
