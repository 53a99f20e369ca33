// Slurm as the service uses it, at the command line. Slurm's commands are found by PATH and SLURM_CONF.
//   distilld-slurm-probe run JOB ATTEMPT SPEC LOG WORD…   submits a job that runs the words, prints its id, waits for
//   its
//                                                         end and prints the kind and the words of that
//   distilld-slurm-probe ended ID…                        waits for the ends of jobs: a line for each, in this order
//   distilld-slurm-probe cancel JOB ATTEMPT [ID]          by its id, or by its name
//   distilld-slurm-probe nodes JOB…                       machines: name, state, cores, GPUs and the jobs there
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "server/supervisor/slurm/slurm_place.hpp"

namespace {

namespace asio = boost::asio;
using namespace distilld;
using Words = std::vector<std::string>;

void say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

std::string text_of(const slurm::JobEnd& end) {
    return std::string(end.failure_kind()) + " " + end.words;
}

slurm::Place place_of(const slurm::Commands& commands, slurm::Queue& queue, const Words& words) {
    slurm::PlaceOptions options;
    options.attempt = {words.at(0), std::stoull(words.at(1))};
    if (words.size() > 3) {
        options.spec = std::make_shared<const JobSpec>(api::parse_job_spec(words.at(2)).value());
        options.log = words.at(3);
        options.command.assign(words.begin() + 4, words.end());
    } else if (words.size() == 3) {
        slurm::Place place(commands, queue, std::move(options));
        place.adopt(std::stoull(words.at(2)));
        return place;
    }
    return {commands, queue, std::move(options)};
}

asio::awaitable<void> run(slurm::Place& place, int& code) {
    const auto begun = co_await place.begin();
    if (!begun) {
        say(begun.error().message);
        co_return;
    }
    say(std::to_string(*place.id()));
    say(text_of(co_await place.ended()));
    code = 0;
}

asio::awaitable<void> cancel(slurm::Place& place, int& code) {
    const auto cancelled = co_await place.cancel();
    say(cancelled ? "cancelled" : cancelled.error().message);
    code = cancelled ? 0 : 1;
}

asio::awaitable<void> wait(slurm::Queue& queue, std::uint64_t id, std::string& text) {
    text = text_of(co_await queue.ended(id, ""));
}

asio::awaitable<void> list(slurm::Queue& queue, Words running, int& code) {
    const auto nodes = co_await queue.nodes(std::move(running));
    if (!nodes) {
        say(nodes.error().message);
        co_return;
    }
    for (const Node& node : *nodes) {
        std::string line =
            node.name + " " + node.state + " " + std::to_string(node.cores) + " " + std::to_string(node.gpus);
        for (const std::string& job : node.jobs) {
            line += " " + job;
        }
        say(line);
    }
    code = 0;
}

int execute(const std::string& what, const Words& words) {
    const auto commands = slurm::Commands::find(slurm::usual_commands());
    if (!commands) {
        say(commands.error().message);
        return 1;
    }
    asio::io_context context(1);
    slurm::Queue queue(*commands, context.get_executor());
    int code = 1;
    if (what == "ended") {
        Words texts(words.size());
        for (std::size_t i = 0; i < words.size(); ++i) {
            asio::co_spawn(context, wait(queue, std::stoull(words[i]), texts[i]), asio::detached);
        }
        context.run();
        for (const std::string& text : texts) {
            say(text);
        }
        return 0;
    }
    if (what == "nodes") {
        asio::co_spawn(context, list(queue, words, code), asio::detached);
        context.run();
        return code;
    }
    slurm::Place place = place_of(*commands, queue, words);
    asio::co_spawn(context, what == "run" ? run(place, code) : cancel(place, code), asio::detached);
    context.run();
    return code;
}

}  // namespace

int main(int argc, char** argv) {
    const Words words(argv + 1, argv + argc);
    if (words.size() < 2) {
        say("usage: distilld-slurm-probe run|ended|cancel|nodes …");
        return 2;
    }
    return execute(words.front(), Words(words.begin() + 1, words.end()));
}
