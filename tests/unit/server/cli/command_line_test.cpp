#include "server/cli/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "api/job_spec_json.hpp"
#include "api/spec_fields.hpp"
#include "server/cli/commands.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/cli/all_commands.hpp"

namespace distilld::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

template <class T>
T parsed(const std::vector<std::string>& arguments) {
    const auto line = parse_command_line(arguments);
    EXPECT_EQ(line.err, "");
    return std::get<T>(line.command.value());
}

TEST(CommandLine, HelpAndVersionEverywhere) {
    for (auto command : test::kAllCommands) {
        command.emplace_back("--help");
        const auto help = parse_command_line(command);
        EXPECT_FALSE(help.command.has_value());
        EXPECT_EQ(help.exit_code, kDone);
        EXPECT_THAT(help.out, HasSubstr("--version"));
        command.back() = "--version";
        const auto version = parse_command_line(command);
        EXPECT_EQ(version.exit_code, kDone);
        EXPECT_THAT(version.out, HasSubstr("distilld "));
    }
}

TEST(CommandLine, GenerateIsARunOfItsKind) {
    const auto plain = parsed<RunCommand>({"generate", "a.json", "--store", "answers"});
    EXPECT_EQ(plain.spec, "a.json");
    EXPECT_THAT(plain.overrides, ElementsAre(Pair("/kind", R"("generate")"), Pair("/metrics", "{}"),
                                             Pair("/teacher/store", R"("answers")")));
    const auto all = parsed<RunCommand>({"generate", "-", "--format", "packed", "--values", "u8", "--teacher-endpoint",
                                         "http://a:1", "--teacher-endpoint", "http://b:2", "--set",
                                         "/training/batch_size=4", "--report", "r.json"});
    EXPECT_EQ(all.report_file, "r.json");
    EXPECT_THAT(all.overrides,
                ElementsAre(Pair("/training/batch_size", "4"), Pair("/kind", R"("generate")"), Pair("/metrics", "{}"),
                            Pair("/teacher/endpoints", R"(["http://a:1","http://b:2"])"),
                            Pair("/teacher/store_format", R"("packed")"), Pair("/teacher/store_values", R"("u8")")));
}

TEST(CommandLine, WrongUsageIsTwoAndSaysWhy) {
    const std::vector<std::vector<std::string>> wrong{{},
                                                      {"dance"},
                                                      {"serve"},
                                                      {"serve", "--data-dir", "d", "--slots", "1025"},
                                                      {"serve", "--data-dir", "d", "--slots-by", "luck"},
                                                      {"serve", "--data-dir", "d", "--max-worker-restarts", "-1"},
                                                      {"run"},
                                                      {"run", "a.json", "b.json"},
                                                      {"run", "a.json", "--parallel", "perhaps"},
                                                      {"run", "a.json", "--micro-batches", "-3"},
                                                      {"run", "a.json", "--timeout", "long"},
                                                      {"run", "a.json", "--set", "no pointer"},
                                                      {"run", "a.json", "--set", "no pointer=1"},
                                                      {"generate"},
                                                      {"generate", "a.json", "--format", "zip"},
                                                      {"teacher", "/nonexistent-folder"},
                                                      {"teacher", "/", "--dtype", "int8"},
                                                      {"teacher", "/", "--threads", "4097"},
                                                      {"teacher", "/", "--delay-ms", "-1"},
                                                      {"teacher", "/", "--max-batch-tokens", "0"},
                                                      {"teacher", "/", "--model-name", "a/b"},
                                                      {"teacher", "/", "--model-name", ""},
                                                      {"jobs"},
                                                      {"jobs", "get"},
                                                      {"jobs", "list", "-o", "yaml"},
                                                      {"jobs", "list", "--state", "lost"},
                                                      {"jobs", "set", "x", "--priority", "101"},
                                                      {"jobs", "set", "x", "--max-concurrent", "0"},
                                                      {"jobs", "set", "x", "--metadata", "=b"},
                                                      {"jobs", "set", "x", "--metadata", "b"},
                                                      {"jobs", "metrics", "x", "--max-points", "1"}};
    for (const auto& arguments : wrong) {
        const auto line = parse_command_line(arguments);
        EXPECT_FALSE(line.command.has_value());
        EXPECT_EQ(line.exit_code, kWrongUsage);
        EXPECT_NE(line.err, "");
    }
}

TEST(CommandLine, SettingsOfTheConnectionComeFromTheEnvironmentToo) {
    const std::map<std::string, std::string> variables{{"DISTILLD_SERVER", "https://h:1"},
                                                       {"DISTILLD_CA", "ca.pem"},
                                                       {"DISTILLD_API_KEY_FILE", "key"},
                                                       {"DISTILLD_CERTIFICATE", "me.pem"},
                                                       {"DISTILLD_CERTIFICATE_KEY", "me.key"}};
    for (const auto& [name, value] : variables) {
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    const auto jobs = parsed<JobsCommand>({"jobs", "get", "x", "--ca", "other.pem"}).connection;
    const auto check = parsed<HealthcheckCommand>({"healthcheck"}).connection;
    for (const auto& [name, value] : variables) {
        ::unsetenv(name.c_str());
    }
    EXPECT_EQ(jobs.server, "https://h:1");
    EXPECT_EQ(jobs.ca, "other.pem") << "what is given counts before it";
    EXPECT_EQ(jobs.api_key_file, "key");
    EXPECT_EQ(jobs.certificate, "me.pem");
    EXPECT_EQ(jobs.certificate_key, "me.key");
    EXPECT_EQ(check.server, "https://h:1");
    EXPECT_EQ(check.ca, "ca.pem");
    EXPECT_EQ(parsed<HealthcheckCommand>({"healthcheck"}).connection.server, "http://127.0.0.1:8500");
}

TEST(CommandLine, SuggestsTheCommandThatWasMeant) {
    EXPECT_EQ(parse_command_line({"rnu", "job.json"}).err,
              "distilld: there is no command 'rnu'; did you mean 'distilld run'?\n");
    EXPECT_EQ(parse_command_line({"jobs", "lsit"}).err,
              "distilld: there is no command 'lsit'; did you mean 'distilld jobs list'?\n");
    EXPECT_EQ(parse_command_line({"dance"}).err,
              "distilld: there is no command 'dance'; 'distilld --help' lists them\n");
}

TEST(CommandLine, SuggestsTheOptionThatWasMeant) {
    EXPECT_EQ(parse_command_line({"run", "job.json", "--ouptut", "x"}).err,
              "distilld run: there is no option '--ouptut'; did you mean '--output'?\n");
    EXPECT_EQ(parse_command_line({"jobs", "list", "--colour=red"}).err,
              "distilld jobs list: there is no option '--colour'; 'distilld jobs list --help' shows the usage\n");
    EXPECT_EQ(parse_command_line({"--verison"}).err,
              "distilld: there is no option '--verison'; did you mean '--version'?\n");
    EXPECT_EQ(parse_command_line({"run"}).err,
              "distilld run: SPEC is required; 'distilld run --help' shows the usage\n");
    EXPECT_EQ(parse_command_line({}).err, "distilld: a command is missing; 'distilld --help' shows the usage\n");
    EXPECT_EQ(parse_command_line({"jobs"}).err,
              "distilld jobs: a command is missing; 'distilld jobs --help' shows the usage\n");
}

TEST(CommandLine, AModelOfTheHubIsDownloadedFirst) {
    const auto line = parse_command_line({"teacher", "Qwen/Qwen3-0.6B"});
    EXPECT_EQ(line.exit_code, kWrongUsage);
    EXPECT_THAT(line.err, HasSubstr("Qwen/Qwen3-0.6B does not exist; a model of the Hugging Face Hub is downloaded "
                                    "first: hf download Qwen/Qwen3-0.6B"));
}

TEST(CommandLine, SetTakesTheNamesOfTheDocumentation) {
    EXPECT_THAT(
        parsed<RunCommand>({"run", "s", "--set", "training.max_steps=4", "--set", "output=a/b.c", "--overwrite"})
            .overrides,
        ElementsAre(Pair("/training/max_steps", "4"), Pair("/output", "a/b.c"), Pair("/overwrite", "true")));
}

TEST(CommandLine, Keys) {
    const auto add = parsed<KeysCommand>({"keys", "add", "alice", "--role", "submit", "--data-dir", "d"});
    EXPECT_EQ(add.action, KeysCommand::Action::add);
    EXPECT_EQ(add.name, "alice");
    EXPECT_EQ(add.role, http::Role::submit);
    EXPECT_EQ(add.data_dir, "d");
    const auto list = parsed<KeysCommand>({"keys", "list", "--data-dir", "d", "--output", "json"});
    EXPECT_EQ(list.action, KeysCommand::Action::list);
    EXPECT_TRUE(list.json);
    EXPECT_FALSE(parsed<KeysCommand>({"keys", "list", "--data-dir", "d", "--output", "table"}).json);
    EXPECT_EQ(parsed<KeysCommand>({"keys", "revoke", "alice", "--data-dir", "d"}).action, KeysCommand::Action::revoke);
    for (const std::vector<std::string>& wrong : {std::vector<std::string>{"keys", "add", "alice", "--data-dir", "d"},
                                                  {"keys", "add", "alice", "--role", "root", "--data-dir", "d"},
                                                  {"keys", "list"},
                                                  {"keys"}}) {
        EXPECT_EQ(parse_command_line(wrong).exit_code, kWrongUsage);
    }
}

ServiceSettings served(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"serve", "--data-dir", "d"});
    return parsed<ServeCommand>(arguments).effective.settings;
}

TEST(CommandLine, Serve) {
    const auto defaults = served({});
    EXPECT_EQ(defaults.teacher.key_root, "");
    EXPECT_EQ(served({"--key-root", "/run/keys"}).teacher.key_root, "/run/keys");
    EXPECT_EQ(defaults.server.listen, "127.0.0.1:8500");
    EXPECT_EQ(defaults.jobs.slots, 0U);
    EXPECT_EQ(defaults.jobs.slots_by, SlotsBy::cores);
    EXPECT_EQ(served({"--slots-by", "devices"}).jobs.slots_by, SlotsBy::devices);
    EXPECT_EQ(defaults.jobs.max_worker_restarts, 3U);
    EXPECT_EQ(defaults.jobs.max_oom_restarts, 3U);
    EXPECT_EQ(defaults.jobs.worker_nice, 5U);
    EXPECT_EQ(defaults.jobs.max_queued, 10000U);
    const auto settings = served({"--listen", "[::1]:0", "--host", "a", "--slots", "3", "--log-json", "--host",
                                  "b.example,c", "--drain-timeout", "5m"});
    EXPECT_THAT(settings.server.hosts, ElementsAre("a", "b.example", "c"));
    EXPECT_EQ(settings.server.listen, "[::1]:0");
    EXPECT_EQ(settings.jobs.data_dir, std::filesystem::current_path() / "d");
    EXPECT_EQ(settings.jobs.slots, 3U);
    EXPECT_TRUE(settings.log.json);
    EXPECT_EQ(settings.server.drain_timeout, std::chrono::minutes(5));
    EXPECT_EQ(served({"--max-worker-restarts", "0"}).jobs.max_worker_restarts, 0U);
    EXPECT_FALSE(defaults.security.insecure || defaults.security.metrics_open);
    EXPECT_TRUE(defaults.security.roots.empty() && defaults.security.teacher_hosts.empty());
    const auto guarded = served({"--insecure", "--metrics-open", "--root", "/a", "--root", "b", "--teacher-host",
                                 "a:1,*.b", "--teacher-host", "10.0.0.0/8"})
                             .security;
    EXPECT_TRUE(guarded.insecure && guarded.metrics_open);
    EXPECT_THAT(guarded.roots, ElementsAre("/a", (std::filesystem::current_path() / "b").string()));
    EXPECT_THAT(guarded.teacher_hosts, ElementsAre("a:1", "*.b", "10.0.0.0/8"));
    EXPECT_THAT(parse_command_line({"serve", "--data-dir", "d", "--teacher-host", "http://h"}).err,
                HasSubstr("security.teacher_hosts"));
    EXPECT_THAT(parse_command_line({"serve", "--data-dir", "d", "--tls-key", "k.pem"}).err,
                HasSubstr("security.tls_certificate"));
}

TEST(CommandLine, ServeTakesSettingsFromItsFileAndSaysWhatIsWrongInIt) {
    const test::TemporaryFolder folder;
    const auto file = (folder.path() / "distilld.toml").string();
    std::ofstream(file) << "[jobs]\ndata_dir = \"jobs\"\nslots = 5\n[log]\njson = true\n";
    const auto settings = parsed<ServeCommand>({"serve", "--config", file, "--log-json=false"}).effective.settings;
    EXPECT_EQ(settings.jobs.data_dir, folder.path() / "jobs");
    EXPECT_EQ(settings.jobs.slots, 5U);
    EXPECT_FALSE(settings.log.json) << "a flag counts before the file";

    const auto printed = parse_command_line({"serve", "--config", file, "--slots", "6", "--print-config"});
    EXPECT_EQ(printed.exit_code, kDone);
    EXPECT_FALSE(printed.command.has_value());
    EXPECT_THAT(printed.out, HasSubstr("slots = 6  # flag --slots\n"));

    std::ofstream(file) << "[jobs]\nslot = 5\n[log]\njson = 1\n";
    for (const auto& more : std::vector<std::vector<std::string>>{{}, {"--print-config"}}) {
        std::vector<std::string> arguments{"serve", "--config", file, "--slots", "1025"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const auto wrong = parse_command_line(arguments);
        EXPECT_EQ(wrong.exit_code, kWrongUsage);
        EXPECT_EQ(wrong.err, file + ":2:1: jobs.slot: there is no such setting; did you mean slots?\n" + file +
                                 ":4:8: log.json: must be true or false\n--slots: jobs.slots: must be a whole number "
                                 "from 0 to 1024\n");
        EXPECT_EQ(wrong.out, "");
    }
}

TEST(CommandLine, RunMapsFlagsToFieldsInOrder) {
    const auto command = parsed<RunCommand>({"run",
                                             "--set",
                                             "/training/max_steps=5",
                                             "spec.json",
                                             "--set",
                                             "/name=a=b",
                                             "--teacher-endpoint",
                                             "http://a:1/x\"y",
                                             "--teacher-endpoint",
                                             "http://b:2",
                                             "--parallel",
                                             "false",
                                             "--micro-batches",
                                             "8",
                                             "--batch-size",
                                             "auto",
                                             "--checkpoint-dir",
                                             "123",
                                             "--timeout",
                                             "2.5",
                                             "--max-steps",
                                             "7",
                                             "--output",
                                             "o",
                                             "--resume",
                                             "--trace",
                                             "t.json",
                                             "--report",
                                             "r.json",
                                             "--metrics-listen",
                                             "[::1]:9000"});
    EXPECT_EQ(command.spec, "spec.json");
    EXPECT_TRUE(command.resume);
    EXPECT_EQ(command.trace_file, "t.json");
    EXPECT_EQ(command.report_file, "r.json");
    EXPECT_EQ(command.metrics_listen, "[::1]:9000");
    EXPECT_THAT(command.overrides,
                ElementsAre(Pair("/training/max_steps", "5"), Pair("/name", "a=b"),
                            Pair("/teacher/endpoints", "[\"http://a:1/x\\\"y\",\"http://b:2\"]"),
                            Pair("/training/parallel", "false"), Pair("/training/micro_batches", "8"),
                            Pair("/training/batch_size", "\"auto\""), Pair("/training/max_steps", "7"),
                            Pair("/training/epochs", "null"), Pair("/checkpoint/dir", "\"123\""),
                            Pair("/teacher/timeout_secs", "2.5"), Pair("/output", "\"o\"")));
}

TEST(CommandLine, FlagsOfFieldsGoByTheirRows) {
    const auto help = parse_command_line({"run", "--help"}).out;
    for (const auto* pointer :
         {"/teacher/endpoints", "/training/parallel", "/training/micro_batches", "/training/batch_size",
          "/training/max_steps", "/checkpoint/dir", "/teacher/timeout_secs", "/output"}) {
        const auto* field = api::spec_table().field(pointer);
        ASSERT_NE(field, nullptr) << pointer;
        EXPECT_THAT(help, HasSubstr(std::string(pointer) + ": ")) << pointer;
    }
    EXPECT_THAT(help, HasSubstr("/training/batch_size: sequences per micro-batch; a step sees batch_size × "
                                "micro_batches. auto: by memory and rows (docs/training.md) (1–65536, \"auto\")"));
    EXPECT_THAT(parse_command_line({"run", "s", "--max-steps", "many"}).err,
                HasSubstr("--max-steps: /training/max_steps: a whole number is expected, not a string"));
    // Ranges are the business of the spec's check, which lists all that is wrong.
    EXPECT_THAT(parsed<RunCommand>({"run", "s", "--micro-batches", "0"}).overrides,
                ElementsAre(Pair("/training/micro_batches", "0")));
    EXPECT_THAT(parse_command_line({"run", "s", "--timeout", "long"}).err,
                HasSubstr("--timeout: /teacher/timeout_secs: a duration (seconds, or a text such as"));
    EXPECT_NE(parse_command_line({"run", "s", "--output", "a", "--output", "b"}).err, "");
    EXPECT_THAT(parsed<RunCommand>({"run", "s", "--parallel", "Off"}).overrides,
                ElementsAre(Pair("/training/parallel", "false")));
    EXPECT_THAT(parsed<RunCommand>({"run", "s", "--parallel", "1"}).overrides,
                ElementsAre(Pair("/training/parallel", "true")));
}

TEST(CommandLine, RunOverridesGiveAValidSpec) {
    const std::string spec = R"({"student":{"model":"m"},"dataset":{"train":"d.jsonl","sequence_length":8},
        "teacher":{"endpoints":["http://x:1"]},"training":{"epochs":2},"output":"o"})";
    const auto command = parsed<RunCommand>({"run", "s", "--teacher-endpoint", "http://a:1", "--parallel", "false",
                                             "--micro-batches", "8", "--batch-size", "4", "--checkpoint-dir", "123",
                                             "--timeout", "2.5", "--max-steps", "7", "--output", "other"});
    const auto text = api::apply_overrides(spec, command.overrides);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    const auto job = api::parse_job_spec(*text);
    ASSERT_TRUE(job.has_value()) << api::describe(job.error());
    EXPECT_THAT(job->teacher()->endpoints, ElementsAre("http://a:1"));
    EXPECT_EQ(job->teacher()->timeout_secs, 2.5);
    EXPECT_FALSE(job->training.parallel);
    EXPECT_EQ(job->training.micro_batches, 8U);
    EXPECT_EQ(job->training.batch_size, 4U);
    EXPECT_EQ(job->training.max_steps, 7U);
    EXPECT_FALSE(job->training.epochs.has_value());
    EXPECT_EQ(job->checkpoint.dir, "123");
    EXPECT_EQ(job->output, "other");
}

TEST(CommandLine, TeacherPassesItsArgumentsOn) {
    const std::vector<std::string> line{"teacher", "--listen",     "127.0.0.1:1", "--threads", "1",
                                        "--dtype", "fp32",         "--delay-ms",  "200",       "--max-batch-tokens",
                                        "512",     "--model-name", "m",           "--",        "/"};
    const auto options = parsed<TeacherCommand>(line).options;
    EXPECT_EQ(options.model, "/");
    EXPECT_EQ(options.listen, "127.0.0.1:1");
    EXPECT_EQ(options.threads, 1U);
    EXPECT_EQ(options.dtype, Dtype::fp32);
    EXPECT_EQ(options.delay, std::chrono::milliseconds(200));
    EXPECT_EQ(options.max_batch_tokens, 512U);
    EXPECT_EQ(options.model_name, "m");
    EXPECT_EQ(teacher_arguments(options), line);
    EXPECT_THAT(teacher_arguments(parsed<TeacherCommand>({"teacher", "/"}).options), ElementsAre("teacher", "--", "/"));
}

TEST(CommandLine, WhatTheTeacherIsToldTheWorkerUnderstands) {
    TeacherOptions told;
    told.model = "--strange";
    told.dtype = Dtype::bf16;
    told.delay = std::chrono::milliseconds(7);
    told.hosts = {"teacher", "10.0.0.7", "[fd00::7]"};
    const auto arguments = teacher_arguments(told);
    CLI::App worker;
    TeacherOptions understood;
    add_teacher_options(*worker.add_subcommand("teacher"), understood);
    worker.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    EXPECT_EQ(understood.model, "--strange");
    EXPECT_EQ(understood.dtype, Dtype::bf16);
    EXPECT_EQ(understood.hosts, told.hosts);
    EXPECT_EQ(teacher_arguments(understood), arguments);
}

TEST(CommandLine, Jobs) {
    const auto list = parsed<JobsCommand>({"jobs", "list", "--server", "http://h:1", "-o", "json", "--limit", "5"});
    EXPECT_EQ(list.action, JobsCommand::Action::list);
    EXPECT_EQ(list.connection.server, "http://h:1");
    EXPECT_TRUE(list.json);
    EXPECT_EQ(list.limit, 5U);
    const auto watch = parsed<JobsCommand>({"jobs", "watch", "job-1"});
    EXPECT_EQ(watch.action, JobsCommand::Action::watch);
    EXPECT_EQ(watch.subject, "job-1");
    EXPECT_EQ(watch.connection.server, "http://127.0.0.1:8500");
    EXPECT_FALSE(watch.json);
    EXPECT_EQ(parsed<JobsCommand>({"jobs", "submit", "s"}).action, JobsCommand::Action::submit);
    EXPECT_EQ(parsed<JobsCommand>({"jobs", "get", "s"}).action, JobsCommand::Action::get);
    for (const char* verb : {"cancel", "pause", "resume", "checkpoint"}) {
        const auto asked = parsed<JobsCommand>({"jobs", verb, "s"});
        EXPECT_EQ(asked.action, JobsCommand::Action::ask);
        EXPECT_STREQ(asked.verb->name, verb);
        EXPECT_TRUE(asked.verb_option);
    }
    EXPECT_FALSE(parsed<JobsCommand>({"jobs", "cancel", "s", "--no-checkpoint"}).verb_option);
    EXPECT_EQ(parsed<JobsCommand>({"jobs", "submit", "s", "--priority", "-7"}).priority, -7);
    const auto set = parsed<JobsCommand>({"jobs", "set", "s", "--priority", "100", "--max-concurrent", "3",
                                          "--metadata", "a=b=c", "--metadata", "gone="});
    EXPECT_EQ(set.action, JobsCommand::Action::set);
    EXPECT_EQ(set.subject, "s");
    EXPECT_EQ(set.priority, 100);
    EXPECT_EQ(set.max_concurrent, 3U);
    EXPECT_THAT(set.metadata, ElementsAre("a=b=c", "gone="));
    EXPECT_THAT(parsed<JobsCommand>({"jobs", "list", "--metadata", "team=red"}).metadata, ElementsAre("team=red"));
    EXPECT_EQ(parsed<JobsCommand>({"jobs", "delete", "s"}).action, JobsCommand::Action::remove);
    EXPECT_EQ(parsed<JobsCommand>({"jobs", "checkpoints", "s"}).action, JobsCommand::Action::checkpoints);
    const auto failed = parsed<JobsCommand>({"jobs", "list", "--state", "failed", "--name", "n m"});
    EXPECT_EQ(failed.state, "failed");
    EXPECT_EQ(failed.name, "n m");
    const auto metrics =
        parsed<JobsCommand>({"jobs", "metrics", "s", "--names", "loss,eval_loss", "--after-step", "0"});
    EXPECT_EQ(metrics.action, JobsCommand::Action::metrics);
    EXPECT_EQ(metrics.subject, "s");
    EXPECT_EQ(metrics.names, "loss,eval_loss");
    EXPECT_TRUE(metrics.from_step);
    EXPECT_EQ(metrics.max_points, 500U);
    EXPECT_FALSE(parsed<JobsCommand>({"jobs", "metrics", "s"}).from_step);
    const auto logs = parsed<JobsCommand>({"jobs", "logs", "s", "--tail", "5"});
    EXPECT_EQ(logs.action, JobsCommand::Action::logs);
    EXPECT_EQ(logs.tail, 5U);
    EXPECT_EQ(parsed<HealthcheckCommand>({"healthcheck", "--server", "http://h:1"}).connection.server, "http://h:1");
    EXPECT_EQ(parsed<NodesCommand>({"nodes", "--server", "http://h:1"}).connection.server, "http://h:1");
    EXPECT_FALSE(parsed<NodesCommand>({"nodes"}).json);
    EXPECT_TRUE(parsed<NodesCommand>({"nodes", "-o", "json"}).json);
}

TEST(Files, ReadsSpecs) {
    const test::TemporaryFolder folder;
    const auto file = folder.write("spec.json", "{}");
    EXPECT_EQ(read_spec_text(file.string()).value(), "{}");
    EXPECT_THAT(read_spec_text((folder / "none").string()).error().message, HasSubstr("none: No such file"));
    EXPECT_THAT(read_spec_text(folder.path().string()).error().message, HasSubstr("is a folder"));
    folder.write("spec.json", std::string(api::kSpecSizeLimit + 1, ' '));
    EXPECT_THAT(read_spec_text(file.string()).error().message, HasSubstr("larger than"));
}

}  // namespace
}  // namespace distilld::cli
