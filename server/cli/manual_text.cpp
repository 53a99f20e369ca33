#include "server/cli/manual_text.hpp"

namespace distilld::cli {
const std::vector<CommandExamples>& command_examples() {
    static const std::vector<CommandExamples> all{
        {{"serve"}, {"distilld serve --data-dir service", "distilld serve --config distilld.toml --print-config"}},
        {{"run"},
         {"distilld run job.json",
          "distilld run job.json --set training.max_steps=4 --set output=out/trial --overwrite"}},
        {{"generate"}, {"distilld generate job.json --store answers"}},
        {{"teacher"}, {"distilld teacher models/teacher --listen 127.0.0.1:8600"}},
        {{"jobs"}, {"distilld jobs submit job.json", "distilld jobs watch first-job"}},
        {{"jobs", "submit"}, {"distilld jobs submit job.json", "distilld jobs submit job.json --dry-run"}},
        {{"jobs", "list"}, {"distilld jobs list --state running"}},
        {{"jobs", "get"}, {"distilld jobs get first-job", "distilld jobs get job-3f9 -o json"}},
        {{"jobs", "watch"}, {"distilld jobs watch first-job"}},
        {{"jobs", "cancel"}, {"distilld jobs cancel first-job"}},
        {{"jobs", "pause"}, {"distilld jobs pause first-job"}},
        {{"jobs", "resume"}, {"distilld jobs resume first-job"}},
        {{"jobs", "checkpoint"}, {"distilld jobs checkpoint first-job"}},
        {{"jobs", "set"}, {"distilld jobs set first-job --priority 10 --metadata team=search"}},
        {{"jobs", "delete"}, {"distilld jobs delete first-job"}},
        {{"jobs", "checkpoints"}, {"distilld jobs checkpoints first-job"}},
        {{"jobs", "metrics"}, {"distilld jobs metrics first-job --names loss,eval_loss"}},
        {{"jobs", "logs"}, {"distilld jobs logs first-job --follow"}},
        {{"jobs", "download"}, {"distilld jobs download first-job --to student"}},
        {{"keys"}, {"distilld keys add alice --role submit --data-dir service"}},
        {{"keys", "add"}, {"distilld keys add alice --role submit --data-dir service"}},
        {{"keys", "list"}, {"distilld keys list --data-dir service"}},
        {{"keys", "revoke"}, {"distilld keys revoke alice --data-dir service"}},
        {{"store"}, {"distilld store inspect answers"}},
        {{"store", "inspect"}, {"distilld store inspect answers"}},
        {{"store", "verify"}, {"distilld store verify answers"}},
        {{"store", "export"}, {"distilld store export answers --to smaller --format topk -k 16"}},
        {{"store", "import"}, {"distilld store import logits.kld --to answers --dataset ids.jsonl"}},
        {{"spec"}, {"distilld spec check job.json"}},
        {{"spec", "init"},
         {"distilld spec init --model models/student --data train.jsonl --teacher-endpoint http://127.0.0.1:8600 > "
          "job.json"}},
        {{"spec", "check"}, {"distilld spec check job.json --set training.epochs=2"}},
        {{"spec", "explain"}, {"distilld spec explain training.beta"}},
        {{"tokenize"}, {"echo 'a line of text' | distilld tokenize models/student"}},
        {{"nodes"}, {"distilld nodes -o json"}},
        {{"healthcheck"}, {"distilld healthcheck --server http://127.0.0.1:8500"}},
        {{"completion"}, {"distilld completion bash > ~/.local/share/bash-completion/completions/distilld"}},
        {{"man"}, {"distilld man | man -l -"}},
    };
    return all;
}

ManualSections manual_sections() {
    ManualSections sections;
    sections.see_also = "distilld-worker(1), and the documents in share/doc/distilld";
    sections.environment = {
        {"DISTILLD_SERVER", "URL of the service for jobs, nodes and healthcheck, if there is no --server"},
        {"DISTILLD_API_KEY", "key for the service, if there is no --api-key-file"},
        {"DISTILLD_API_KEY_FILE", "file with that key, as --api-key-file; it takes precedence over DISTILLD_API_KEY"},
        {"DISTILLD_CA", "PEM file with authorities to trust in addition to the system's, as --ca"},
        {"DISTILLD_CERTIFICATE, DISTILLD_CERTIFICATE_KEY",
         "PEM files with a client certificate and its key, for a service that asks for one"},
        {"DISTILLD_SECTION_NAME", "a setting of the service, such as DISTILLD_JOBS_SLOTS (docs/settings.md)"},
        {"DISTILLD_ADMIN_KEY", "a key of role admin for the service, besides those of distilld keys"},
        {"DISTILLD_KEY_...", "keys of teachers; teacher.api_key_env of a spec names the variable"},
        {"DISTILLD_KEYS_DIR", "folder of files with keys of teachers, for run and serve"},
        {"DISTILLD_TEACHER_HOSTS", "hosts that teachers may have, for run and serve, separated by commas"},
    };
    sections.files = {
        {"DATA_DIR/jobs.sqlite", "jobs of the service and their history"},
        {"DATA_DIR/logs", "logs of each job's workers"},
        {"DATA_DIR/keys.json, DATA_DIR/audit.jsonl", "keys of the service, and its audit log"},
        {"OUTPUT", "the trained student, a Hugging Face folder"},
        {"OUTPUT/checkpoints", "checkpoints of the run, unless checkpoint.dir is set"},
        {"OUTPUT/distilld.json", "the run that made the student"},
    };
    return sections;
}

}  // namespace distilld::cli
