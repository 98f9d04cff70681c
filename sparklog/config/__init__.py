"""Settings as data: of topics, of producers, consumers and admins, by Kafka's names."""

from sparklog.config.admin import ADMIN_SETTINGS, AdminConfig
from sparklog.config.consumer import CONSUMER_SETTINGS, ConsumerConfig, ResetPolicy
from sparklog.config.producer import ACKS_ALL, PRODUCER_SETTINGS, ProducerConfig
from sparklog.config.settings import Setting, Value
from sparklog.config.share_consumer import SHARE_CONSUMER_SETTINGS, ShareConsumerConfig
from sparklog.config.topic import TOPIC_SETTINGS, TopicConfig, setting_names

__all__ = [
    "ACKS_ALL",
    "ADMIN_SETTINGS",
    "CONSUMER_SETTINGS",
    "PRODUCER_SETTINGS",
    "SHARE_CONSUMER_SETTINGS",
    "TOPIC_SETTINGS",
    "AdminConfig",
    "ConsumerConfig",
    "ProducerConfig",
    "ResetPolicy",
    "Setting",
    "ShareConsumerConfig",
    "TopicConfig",
    "Value",
    "setting_names",
]
