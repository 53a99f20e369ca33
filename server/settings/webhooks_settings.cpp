#include "server/settings/settings_table.hpp"

namespace distilld {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

std::vector<SettingConflict> check_webhooks(const ServiceSettings& settings) {
    const auto& webhooks = settings.webhooks;
    std::vector<SettingConflict> conflicts;
    if (webhooks.urls.empty() != webhooks.secret_file.empty()) {
        conflicts.push_back({"webhooks.secret_file",
                             webhooks.urls.empty() ? "has no effect unless webhooks.urls is set"
                                                   : "is required with webhooks.urls: --webhook-secret-file FILE"});
    }
    if (webhooks.urls.empty() && !webhooks.private_hosts.empty()) {
        conflicts.push_back({"webhooks.private_hosts", "has no effect unless webhooks.urls is set"});
    }
    return conflicts;
}

}  // namespace

SettingsSection webhooks_section() {
    return {.name = "webhooks",
            .help = "who is notified when a job ends",
            .settings =
                {
                    {.name = "urls",
                     .kind = make_names(&WebhooksSettings::urls, {.type_name = "URL"}),
                     .help = "http or https URLs that are notified when a job ends",
                     .flag = "--webhook-url"},
                    {.name = "secret_file",
                     .kind = api::make_path(&WebhooksSettings::secret_file, api::PathUse::reads, "file", true),
                     .help = "file with the secret that signs webhooks: whsec_ and base64",
                     .flag = "--webhook-secret-file"},
                    {.name = "private_hosts",
                     .kind = make_names(&WebhooksSettings::private_hosts, {.type_name = "NAME"}),
                     .help = "names of receivers that may have private addresses",
                     .flag = "--webhook-private-host"},
                    {.name = "timeout",
                     .kind = api::make_duration(&WebhooksSettings::timeout, milliseconds(100), hours(1)),
                     .help = "time for a receiver to answer one attempt",
                     .flag = "--webhook-timeout"},
                    {.name = "tries",
                     .kind = api::make_integer(&WebhooksSettings::tries, {1, 100}),
                     .help = "attempts to deliver an event before it is given up",
                     .flag = "--webhook-tries"},
                },
            .check = check_webhooks};
}

}  // namespace distilld
