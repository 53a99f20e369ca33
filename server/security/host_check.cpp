#include "server/security/host_check.hpp"

#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <string>
#include <utility>

#include "pipeline/core/teacher_name.hpp"

namespace distilld {
namespace {

void check_url(const std::string& text, const std::string& pointer, const HostRule& rule, api::SpecViolations& found) {
    const auto url = boost::urls::parse_uri(text);
    if (!url) {
        return;  // reported elsewhere
    }
    const std::string host = url->host_type() == boost::urls::host_type::ipv6 ? url->host_address() : url->host();
    const auto port =
        url->has_port() && !url->port().empty() ? url->port_number() : boost::urls::default_port(url->scheme_id());
    if (auto why = rule.refusal(host, port)) {
        found.violations.push_back({pointer, "host_not_allowed", *std::move(why)});
    }
}

void check_endpoints(const std::vector<std::string>& endpoints, const std::string& section, const HostRule& rule,
                     api::SpecViolations& found) {
    for (std::size_t i = 0; i < endpoints.size(); ++i) {
        check_url(endpoints[i], section + "/endpoints/" + std::to_string(i), rule, found);
    }
}

}  // namespace

api::SpecViolations check_hosts(const JobSpec& spec, const HostRule& rule) {
    api::SpecViolations found;
    for (const auto& [name, teacher] : spec.teachers) {
        check_endpoints(teacher.endpoints, teacher_pointer(name), rule, found);
    }
    if (spec.rollout) {
        check_endpoints(spec.rollout->endpoints, "/rollout", rule, found);
    }
    const HostRule others;
    check_url(spec.metrics.mlflow_url, "/metrics/mlflow_url", others, found);
    check_url(spec.metrics.otlp_url, "/metrics/otlp_url", others, found);
    return found;
}

}  // namespace distilld
