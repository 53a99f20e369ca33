#include "server/jobs/routes/node_routes.hpp"

#include <boost/json/array.hpp>
#include <utility>

#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/query_reader.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

json::object node_object(const Node& node) {
    return {{"name", node.name},   {"state", node.state},
            {"cores", node.cores}, {"memory_mb", node.memory_mb},
            {"gpus", node.gpus},   {"jobs", json::array(node.jobs.begin(), node.jobs.end())}};
}

boost::asio::awaitable<http::Response> list_nodes(JobManager& manager, http::Request request) {
    check_query(request, {});
    const auto nodes = co_await manager.nodes();
    if (!nodes) {
        log::error("http", nodes.error().message);
        co_return unavailable(request.path, "nodes_unavailable", nodes.error().message);
    }
    json::array data;
    for (const Node& node : *nodes) {
        data.push_back(node_object(node));
    }
    const json::object body{{"object", "list"}, {"data", std::move(data)}};
    co_return json_response(200, body);
}

}  // namespace

std::vector<http::Route> make_node_routes(JobManager& manager) {
    return {api_route("GET", "/v1/nodes",
                      [&manager](http::Request request) { return list_nodes(manager, std::move(request)); })};
}

}  // namespace distilld
