"""A custom policy that asks a model with OpenAI's own client, as an alternative to the built-in policy `openai`.

pip install openai
OPENAI_API_KEY=... MODEL=gpt-5-mini vlmgym eval 2048 --policy examples/openai_policy.py:custom_policy

OPENAI_BASE_URL chooses another server. The run ends if a request still fails after the client's retries.
"""

import asyncio
import base64
import io
import os

from openai import AsyncOpenAI
from PIL import Image

from vlmgym.policies import Reply

client = AsyncOpenAI(max_retries=5)
limit = asyncio.Semaphore(64)


async def custom_policy(images_batch, prompt_batch):
    """Respond to each prompt, a string; images_batch[i] is a list of uint8 arrays (height, width, 3)."""
    return await asyncio.gather(*map(respond, images_batch, prompt_batch))


async def respond(images, prompt):
    content = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
    content.append({"type": "text", "text": prompt.text})
    async with limit:
        completion = await client.chat.completions.create(
            model=os.environ["MODEL"], messages=[{"role": "user", "content": content}]
        )
    usage = completion.usage
    return Reply(
        completion.choices[0].message.content or "",
        prompt_tokens=usage and usage.prompt_tokens,
        completion_tokens=usage and usage.completion_tokens,
        finish_reason=completion.choices[0].finish_reason,
        model=completion.model,
    )


def data_url(image):
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
